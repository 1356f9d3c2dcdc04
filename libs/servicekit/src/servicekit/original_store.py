"""The store of the originals of documents: NATS' object store, or an S3-compatible store.

The names of originals are `keys.original_object`, `keys.texts_object`, `keys.member_object`.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from io import BufferedIOBase
from typing import BinaryIO, Protocol, cast

import nats.errors
import nats.js.errors

from servicekit import keys, objects
from servicekit.errors import NotFound, Unavailable
from servicekit.nats import IngestTransport
from servicekit.original_settings import OriginalSettings
from servicekit.stream_limits import is_full

_RETRY_SECONDS = 2.0
_FULL_SECONDS = 30.0


class OriginalStore(Protocol):
    """Stores each original completely or not at all. Callers must set time-outs.

    The facts of an original are short texts about it, for example the ETag of the file that the worker fetched.
    """

    async def put(self, name: str, source: BinaryIO, facts: Mapping[str, str] | None = None) -> None:
        """Store an original with its facts. An existing original is unchanged.

        Raises:
            Unavailable: The store is unavailable or full. The original is then either missing or complete.
        """
        ...

    async def read(self, name: str, target: BinaryIO) -> None:
        """Write the bytes of an original to a file, piece by piece.

        Raises:
            NotFound: The original does not exist.
            Unavailable: The store is unavailable, or the bytes are damaged.
            OSError: The file cannot be written.
        """
        ...

    async def facts(self, name: str) -> Mapping[str, str] | None:
        """Return the facts that `put` stored with an original, or None if it does not exist.

        Raises:
            Unavailable: The store is unavailable.
        """
        ...

    async def remove(self, name: str) -> None:
        """Remove an original; a missing original is not an error.

        Raises:
            Unavailable: The store is unavailable.
        """
        ...

    async def problem(self) -> str | None:
        """Return the reason why the store is unavailable, for an administrator; None if it is available."""
        ...


def create_original_store(
    settings: OriginalSettings, transport: Callable[[], Awaitable[IngestTransport]]
) -> OriginalStore:
    """Return the store that the settings select.

    If a bucket is set, NATS is also read, because it may contain originals from before the bucket was set.

    Raises:
        InvalidRequest: A file that a setting names is invalid.
    """
    nats_store = NatsOriginalStore(transport)
    if not settings.s3_bucket:
        return nats_store
    from servicekit.s3_originals import S3OriginalStore  # imported here because its library is large

    return MovedOriginalStore(S3OriginalStore(settings), nats_store)


def missing_original(name: str) -> NotFound:
    """Return the error for a missing original."""
    return NotFound("The original of the document is gone.", resource=name)


class NatsOriginalStore:
    """The `OriginalStore` in NATS' object store.

    Args:
        transport: Returns the object store; raises `Unavailable` while NATS is unavailable.
    """

    def __init__(self, transport: Callable[[], Awaitable[IngestTransport]]) -> None:
        self._transport = transport

    async def put(self, name: str, source: BinaryIO, facts: Mapping[str, str] | None = None) -> None:
        """See `OriginalStore`."""
        jetstream = (await self._transport()).jetstream
        with _unavailable_errors():
            await objects.put_once(jetstream, keys.ORIGINALS_BUCKET, name, source, facts)

    async def read(self, name: str, target: BinaryIO) -> None:
        """See `OriginalStore`. Without a time-out, a read of an object with missing pieces never ends."""
        transport = await self._transport()
        try:
            with _unavailable_errors():
                small = await objects.read_small(transport.jetstream, keys.ORIGINALS_BUCKET, name)
                if small is None:
                    await transport.originals.get(name, writeinto=cast("BufferedIOBase", target))
                    return
        except nats.js.errors.NotFoundError as error:
            raise missing_original(name) from error
        target.write(small)

    async def facts(self, name: str) -> Mapping[str, str] | None:
        """See `OriginalStore`."""
        transport = await self._transport()
        try:
            with _unavailable_errors():
                info = await transport.originals.get_info(name)
        except nats.js.errors.NotFoundError:
            return None
        return {key: values[0] for key, values in (info.headers or {}).items()}

    async def remove(self, name: str) -> None:
        """See `OriginalStore`."""
        transport = await self._transport()
        with _unavailable_errors():
            await objects.remove(transport.jetstream, keys.ORIGINALS_BUCKET, name)

    async def problem(self) -> str | None:
        """See `OriginalStore`. The connection to NATS has its own checks."""
        return None


class MovedOriginalStore:
    """An `OriginalStore` for a deployment that has changed its store. It also reads older originals.

    Args:
        present: The store of all new originals.
        former: The store of the originals that the present store does not contain.
    """

    def __init__(self, present: OriginalStore, former: OriginalStore) -> None:
        self._present = present
        self._former = former

    async def put(self, name: str, source: BinaryIO, facts: Mapping[str, str] | None = None) -> None:
        """See `OriginalStore`. Names are never reused, so the former store is not read."""
        await self._present.put(name, source, facts)

    async def read(self, name: str, target: BinaryIO) -> None:
        """See `OriginalStore`."""
        try:
            await self._present.read(name, target)
        except NotFound:
            await self._former.read(name, target)

    async def facts(self, name: str) -> Mapping[str, str] | None:
        """See `OriginalStore`."""
        found = await self._present.facts(name)
        return await self._former.facts(name) if found is None else found

    async def remove(self, name: str) -> None:
        """See `OriginalStore`."""
        await self._present.remove(name)
        await self._former.remove(name)

    async def problem(self) -> str | None:
        """See `OriginalStore`. Returns the problem of the present store."""
        return await self._present.problem()


@contextlib.contextmanager
def _unavailable_errors() -> Iterator[None]:
    """Turn the errors of an unavailable NATS into `Unavailable`; a missing object raises its own error."""
    try:
        yield
    except nats.js.errors.NotFoundError:
        raise
    except (nats.errors.Error, nats.js.errors.Error, TimeoutError, ConnectionError) as error:
        if is_full(error):
            raise Unavailable(
                "The store of the originals is full. Try again later.", retry_after=_FULL_SECONDS
            ) from error
        raise Unavailable(
            "The store of the originals cannot be reached. Try again shortly.", retry_after=_RETRY_SECONDS
        ) from error
