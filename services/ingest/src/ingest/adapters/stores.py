"""Stores of originals, job states and pictures; implements `ingest.ports` with JetStream and `OriginalStore`."""

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
from servicekit import keys
from servicekit.errors import Conflict, Unavailable
from servicekit.nats import IngestTransport
from servicekit.original_store import OriginalStore

from ingest.adapters.messages import status_from_message, status_to_message
from ingest.domain import Document, DownloadInfo, Job, Status, Validators

_MIN_BYTES_PER_SECOND = 2_000_000
"""The minimum speed that the time-out of an original assumes."""
_PICTURE_SECONDS = 10.0
"""Time-out for storing or removing pictures."""


@contextlib.contextmanager
def unavailable_errors() -> Iterator[None]:
    """Convert the errors of an unavailable NATS server to `Unavailable`."""
    try:
        yield
    except (nats.errors.Error, TimeoutError, OSError) as error:
        raise Unavailable("The message broker does not answer.") from error


class StoredOriginals:
    """The originals in their store.

    Args:
        store: The store.
        seconds: Base time-out of an operation in seconds. The length of the original extends the time-out.
    """

    def __init__(self, store: OriginalStore, seconds: float = 10.0) -> None:
        self._store = store
        self._seconds = seconds

    async def fetch(self, object_name: str, target: Path, size_bytes: int) -> None:
        """See `ingest.ports.Originals.fetch`."""
        with target.open("wb") as file, self._timeouts_as_unavailable("fetched"):
            # Without the time-out, reading an object with missing pieces would never end.
            async with asyncio.timeout(self._seconds + size_bytes / _MIN_BYTES_PER_SECOND):
                await self._store.read(object_name, file)

    async def put(self, object_name: str, source: Path, info: DownloadInfo) -> None:
        """See `ingest.ports.Originals.put`."""
        validators = info.validators
        facts = {"suffix": info.suffix, "etag": validators.etag, "last-modified": validators.last_modified}
        with source.open("rb") as file, self._timeouts_as_unavailable("stored"):
            size = os.fstat(file.fileno()).st_size
            async with asyncio.timeout(self._seconds + size / _MIN_BYTES_PER_SECOND):
                await self._store.put(object_name, file, facts)

    async def download_info(self, object_name: str) -> DownloadInfo | None:
        """See `ingest.ports.Originals.download_info`."""
        with self._timeouts_as_unavailable("looked up"):
            async with asyncio.timeout(self._seconds):
                facts = await self._store.facts(object_name)
        if facts is None:
            return None
        return DownloadInfo(
            facts.get("suffix", ""), Validators(facts.get("etag", ""), facts.get("last-modified", ""))
        )

    async def remove(self, object_name: str) -> None:
        """See `ingest.ports.Originals.remove`."""
        with self._timeouts_as_unavailable("removed"):
            async with asyncio.timeout(self._seconds):
                await self._store.remove(object_name)

    @contextlib.contextmanager
    def _timeouts_as_unavailable(self, action: str) -> Iterator[None]:
        try:
            yield
        except TimeoutError as error:
            raise Unavailable(f"The original of the document cannot be {action}: its store is too slow.") from error


class NatsJobs:
    """States of jobs in a key-value bucket. The revision of a state is its sequence in the bucket."""

    def __init__(self, client: Client, bucket: KeyValue) -> None:
        self._client = client
        self._bucket = bucket

    async def read(self, job: Job) -> tuple[Status, int] | None:
        """See `ingest.ports.Jobs.read`."""
        try:
            with unavailable_errors():
                entry = await self._bucket.get(_key(job))
        except Unavailable as error:
            if isinstance(error.__cause__, nats.js.errors.KeyNotFoundError):
                return None
            raise
        assert entry.value is not None
        assert entry.revision is not None
        return status_from_message(entry.value), entry.revision

    async def write(self, job: Job, status: Status, revision: int) -> int:
        """See `ingest.ports.Jobs.write`."""
        if not self._client.is_connected:
            raise Unavailable("The message broker does not answer.")  # do not wait for a time-out
        value = status_to_message(job, status, datetime.now(UTC))
        try:
            with unavailable_errors():
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
    """Stores each picture as a message.

    Args:
        transport: The bucket of the pictures.
    """

    def __init__(self, transport: IngestTransport) -> None:
        self._transport = transport

    async def put(self, job: Job, document: Document, page: int, picture: bytes) -> None:
        """See `ingest.ports.Pictures.put`."""
        key = keys.picture_key(job.principal.tenant, job.index, document.document_id, document.sha256, page)
        try:
            async with asyncio.timeout(_PICTURE_SECONDS):
                await self._transport.pictures.put(key, picture)
        except (nats.errors.Error, TimeoutError, ConnectionError) as error:
            raise Unavailable("The pictures of the document cannot be stored.") from error

    async def remove(self, job: Job, document: Document) -> None:
        """See `ingest.ports.Pictures.remove`."""
        pattern = keys.document_pictures(job.principal.tenant, job.index, document.document_id, document.sha256)
        try:
            async with asyncio.timeout(_PICTURE_SECONDS):
                await self._transport.remove_pictures(pattern)
        except (nats.errors.Error, TimeoutError, ConnectionError) as error:
            raise Unavailable("The pictures of the document cannot be removed.") from error
