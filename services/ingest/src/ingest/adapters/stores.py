"""The states of jobs, the originals and the pictures of pages on NATS JetStream; implements `ingest.ports`."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.kv import KeyValue
from servicekit import keys, objects
from servicekit.errors import Conflict, NotFound, Unavailable
from servicekit.nats import IngestTransport

from ingest.adapters.messages import status_from_message, status_to_message
from ingest.domain import Document, Fetched, Job, Status, Validators

_ANSWER_SECONDS = 5.0
_FETCH_BYTES_A_SECOND = 2_000_000
_PICTURE_SECONDS = 10.0


@contextlib.contextmanager
def unavailable() -> Iterator[None]:
    """Whatever keeps NATS from answering, as one error of ours."""
    try:
        yield
    except (nats.errors.Error, TimeoutError, OSError) as error:
        raise Unavailable("The message broker does not answer.") from error


class NatsOriginals:
    """Originals in an object store.

    Args:
        transport: Has the object store.
        seconds: Longest time that an original may take, besides what its length asks for.
    """

    def __init__(self, transport: IngestTransport, seconds: float = 10.0) -> None:
        self._transport = transport
        self._seconds = seconds

    async def fetch(self, object_name: str, target: Path, size_bytes: int) -> None:
        """Writes an original to a file; see `ingest.ports.Originals.fetch`."""
        with target.open("wb") as file:
            try:
                async with asyncio.timeout(self._seconds + size_bytes / _FETCH_BYTES_A_SECOND):
                    jetstream = self._transport.jetstream
                    small = await objects.read_small(jetstream, keys.ORIGINALS_BUCKET, object_name)
                    if small is not None:
                        file.write(small)
                        return
                    # Never into memory, and never without a time-out: who reads an object whose pieces are gone
                    # waits for ever.
                    await self._transport.originals.get(object_name, writeinto=file)
            except nats.js.errors.NotFoundError as error:
                raise NotFound("The original of the document is gone.", resource=object_name) from error
            except (nats.errors.Error, TimeoutError, ConnectionError) as error:
                raise Unavailable("The original of the document cannot be fetched.") from error

    async def put(self, object_name: str, source: Path, fetched: Fetched) -> None:
        """Stores what was fetched; see `ingest.ports.Originals.put`."""
        known = fetched.validators
        told = {"suffix": fetched.suffix, "etag": known.etag, "last-modified": known.last_modified}
        with source.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            try:
                async with asyncio.timeout(self._seconds + size / _FETCH_BYTES_A_SECOND):
                    jetstream = self._transport.jetstream
                    await objects.put_once(jetstream, keys.ORIGINALS_BUCKET, object_name, file, told)
            except (nats.errors.Error, TimeoutError, ConnectionError) as error:
                raise Unavailable("The original of the document cannot be stored.") from error

    async def fetched(self, object_name: str) -> Fetched | None:
        """What was told of an object; see `ingest.ports.Originals.fetched`."""
        try:
            async with asyncio.timeout(self._seconds):
                info = await self._transport.originals.get_info(object_name)
        except nats.js.errors.NotFoundError:
            return None
        except (nats.errors.Error, TimeoutError, ConnectionError) as error:
            raise Unavailable("The original of the document cannot be looked for.") from error
        told = {name: values[0] for name, values in (info.headers or {}).items()}
        return Fetched(told.get("suffix", ""), Validators(told.get("etag", ""), told.get("last-modified", "")))

    async def remove(self, object_name: str) -> None:
        """Removes an object; see `ingest.ports.Originals.remove`."""
        try:
            async with asyncio.timeout(self._seconds):
                await objects.remove(self._transport.jetstream, keys.ORIGINALS_BUCKET, object_name)
        except (nats.errors.Error, TimeoutError, ConnectionError) as error:
            raise Unavailable("What the job brought cannot be removed.") from error


class NatsJobs:
    """States in a key-value bucket; a state's revision is its sequence there."""

    def __init__(self, client: Client, bucket: KeyValue) -> None:
        self._client = client
        self._bucket = bucket

    async def read(self, job: Job) -> tuple[Status, int] | None:
        """A job's state and its revision; see `ingest.ports.Jobs.read`."""
        try:
            with unavailable():
                entry = await self._bucket.get(_key(job))
        except Unavailable as error:
            if isinstance(error.__cause__, nats.js.errors.KeyNotFoundError):
                return None
            raise
        assert entry.value is not None
        assert entry.revision is not None
        return status_from_message(entry.value), entry.revision

    async def write(self, job: Job, status: Status, revision: int) -> int:
        """Records a state; see `ingest.ports.Jobs.write`."""
        if not self._client.is_connected:
            raise Unavailable("The message broker does not answer.")  # now, not after a time-out
        value = status_to_message(job, status, datetime.now(UTC))
        try:
            with unavailable():
                if revision:
                    return await self._bucket.update(_key(job), value, last=revision)
                return await self._bucket.create(_key(job), value)
        except Unavailable as error:
            if isinstance(error.__cause__, nats.js.errors.KeyWrongLastSequenceError):
                raise Conflict("Another state has been recorded.") from error
            raise


def _key(job: Job) -> str:
    return keys.job_key(job.principal.tenant, job.job_id)


class NatsPictures:
    """Pictures, one message each.

    Args:
        transport: Has the bucket.
    """

    def __init__(self, transport: IngestTransport) -> None:
        self._transport = transport

    async def put(self, job: Job, document: Document, page: int, picture: bytes) -> None:
        """Keeps a picture; see `ingest.ports.Pictures.put`."""
        key = keys.picture_key(job.principal.tenant, job.index, document.document_id, document.sha256, page)
        try:
            async with asyncio.timeout(_PICTURE_SECONDS):
                await self._transport.pictures.put(key, picture)
        except (nats.errors.Error, TimeoutError, ConnectionError) as error:
            raise Unavailable("The pictures of the document cannot be stored.") from error

    async def remove(self, job: Job, document: Document) -> None:
        """Removes a version's pictures; see `ingest.ports.Pictures.remove`."""
        pattern = keys.document_pictures(job.principal.tenant, job.index, document.document_id, document.sha256)
        try:
            async with asyncio.timeout(_PICTURE_SECONDS):
                await self._transport.remove_pictures(pattern)
        except (nats.errors.Error, TimeoutError, ConnectionError) as error:
            raise Unavailable("The pictures of the document cannot be removed.") from error
