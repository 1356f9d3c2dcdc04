"""Where the originals of documents are kept: in NATS' object store, or elsewhere behind the same port.

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
from servicekit.stream_room import is_full

_RETRY_SECONDS = 2.0
_FULL_SECONDS = 30.0


class OriginalStore(Protocol):
    """Keeps originals, whole or not at all. It waits for its server as long as the caller lets it."""

    async def put(self, name: str, source: BinaryIO, facts: Mapping[str, str] | None = None) -> None:
        """Store an original with what is known of it. One that is there already stays.

        Raises:
            Unavailable: The store does not answer, or is full. Nothing is there then, or what is there is whole.
        """
        ...

    async def read(self, name: str, target: BinaryIO) -> None:
        """Write the bytes of an original to a file, piece by piece.

        Raises:
            NotFound: It is not there.
            Unavailable: The store does not answer, or its bytes are not those that were stored.
            OSError: The file takes no more.
        """
        ...

    async def facts(self, name: str) -> Mapping[str, str] | None:
        """Return what `put` was told of an original; None where it is not there.

        Raises:
            Unavailable: The store does not answer.
        """
        ...

    async def remove(self, name: str) -> None:
        """Remove an original; nothing happens where it is not there.

        Raises:
            Unavailable: The store does not answer.
        """
        ...

    async def problem(self) -> str | None:
        """Return what keeps the store from answering, in words for an administrator; None where nothing does."""
        ...


def store_of(settings: OriginalSettings, transport: Callable[[], Awaitable[IngestTransport]]) -> OriginalStore:
    """Return the store that the settings name.

    With a bucket, NATS is read, too: it has what came in before the bucket was set.

    Raises:
        InvalidRequest: A file that the settings name cannot be used.
    """
    nats_store = NatsOriginalStore(transport)
    if not settings.s3_bucket:
        return nats_store
    from servicekit.s3_originals import S3OriginalStore  # its library is large, and not needed otherwise

    return MovedOriginalStore(S3OriginalStore(settings), nats_store)


def gone(name: str) -> NotFound:
    """Return the error for an original that is not there."""
    return NotFound("The original of the document is gone.", resource=name)


class NatsOriginalStore:
    """`OriginalStore` in NATS' object store.

    Args:
        transport: Gives the object store; raises `Unavailable` while NATS is away.
    """

    def __init__(self, transport: Callable[[], Awaitable[IngestTransport]]) -> None:
        self._transport = transport

    async def put(self, name: str, source: BinaryIO, facts: Mapping[str, str] | None = None) -> None:
        """See `OriginalStore`."""
        jetstream = (await self._transport()).jetstream
        with _answers():
            await objects.put_once(jetstream, keys.ORIGINALS_BUCKET, name, source, facts)

    async def read(self, name: str, target: BinaryIO) -> None:
        """See `OriginalStore`. Who reads an object whose pieces are gone waits for ever, if he has no time-out."""
        transport = await self._transport()
        try:
            with _answers():
                small = await objects.read_small(transport.jetstream, keys.ORIGINALS_BUCKET, name)
                if small is None:
                    await transport.originals.get(
                        name, writeinto=cast("BufferedIOBase", target)
                    )  # never into memory
                    return
        except nats.js.errors.NotFoundError as error:
            raise gone(name) from error
        target.write(small)

    async def facts(self, name: str) -> Mapping[str, str] | None:
        """See `OriginalStore`."""
        transport = await self._transport()
        try:
            with _answers():
                info = await transport.originals.get_info(name)
        except nats.js.errors.NotFoundError:
            return None
        return {key: values[0] for key, values in (info.headers or {}).items()}

    async def remove(self, name: str) -> None:
        """See `OriginalStore`."""
        transport = await self._transport()
        with _answers():
            await objects.remove(transport.jetstream, keys.ORIGINALS_BUCKET, name)

    async def problem(self) -> str | None:
        """See `OriginalStore`. Who has NATS asks it himself."""
        return None


class MovedOriginalStore:
    """`OriginalStore` for an installation that has changed its store: what is in the former one is read there.

    Args:
        present: Takes all that is new.
        former: Asked for what the present one does not have.
    """

    def __init__(self, present: OriginalStore, former: OriginalStore) -> None:
        self._present = present
        self._former = former

    async def put(self, name: str, source: BinaryIO, facts: Mapping[str, str] | None = None) -> None:
        """See `OriginalStore`. No name is given twice, hence the former store is not asked."""
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
        """See `OriginalStore`: of the present one."""
        return await self._present.problem()


@contextlib.contextmanager
def _answers() -> Iterator[None]:
    """What keeps NATS from answering as one error of ours; that an object is not there comes through."""
    try:
        yield
    except nats.js.errors.NotFoundError:
        raise
    except (nats.errors.Error, nats.js.errors.Error, TimeoutError, ConnectionError) as error:
        if is_full(error):
            raise Unavailable(
                "The store of the originals is full: nothing more is taken. Try again later.",
                retry_after=_FULL_SECONDS,
            ) from error
        raise Unavailable(
            "The store of the originals cannot be reached. Try again shortly.", retry_after=_RETRY_SECONDS
        ) from error
