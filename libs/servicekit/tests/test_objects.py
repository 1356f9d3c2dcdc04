import asyncio
import io

import pytest
from causeway_testing.servers import eventually
from nats.js.errors import ObjectNotFoundError
from servicekit import keys, objects
from servicekit.nats import IngestTransport

CONTENT = bytes(range(256)) * 2000


async def put(transport: IngestTransport, name: str, content: bytes = CONTENT) -> None:
    await objects.put_once(transport.jetstream, keys.ORIGINALS_BUCKET, name, io.BytesIO(content))


async def read(transport: IngestTransport, name: str) -> bytes:
    target = io.BytesIO()
    await asyncio.wait_for(transport.originals.get(name, target), 60)
    return target.getvalue()


async def messages(transport: IngestTransport) -> int:
    return (await transport.jetstream.stream_info(f"OBJ_{keys.ORIGINALS_BUCKET}")).state.messages


async def test_other_clients_can_read_objects(transport: IngestTransport) -> None:
    """The library's own reader, which checks the digest, reads the object unchanged, even an empty one."""
    await put(transport, "a")
    await put(transport, "empty", b"")
    assert await read(transport, "a") == CONTENT
    assert (await transport.originals.get("empty")).data == b""
    assert {info.name for info in await transport.originals.list()} == {"a", "empty"}


async def test_the_first_writer_wins(transport: IngestTransport) -> None:
    """Of ten concurrent writers one wins. Its pieces are complete. The pieces of the others and of a later writer
    are removed.
    """
    await asyncio.gather(*(put(transport, "a") for _ in range(10)))
    assert await read(transport, "a") == CONTENT
    assert await messages(transport) == 4 + 1
    [before] = await transport.originals.list()
    await put(transport, "a")
    [after] = await transport.originals.list()
    assert before.nuid == after.nuid
    assert await messages(transport) == 4 + 1


async def test_a_writer_that_gives_up_leaves_nothing(transport: IngestTransport) -> None:
    """A writer that fails or is cancelled leaves neither an object nor pieces, and the next writer succeeds."""

    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            if self.tell() > 200_000:
                raise ZeroDivisionError
            return super().read(size)

    with pytest.raises(ZeroDivisionError):
        await objects.put_once(transport.jetstream, keys.ORIGINALS_BUCKET, "a", Broken(CONTENT))
    large = io.BytesIO(bytes(50_000_000))
    writing = asyncio.create_task(objects.put_once(transport.jetstream, keys.ORIGINALS_BUCKET, "a", large))
    await eventually(lambda: large.tell() > 1_000_000)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await messages(transport) == 0
    await put(transport, "a")
    assert await read(transport, "a") == CONTENT


async def test_a_removed_object_leaves_nothing(transport: IngestTransport) -> None:
    """Pieces and record are removed, and the name can be written again. Removing a missing object is no error."""
    await put(transport, "a")
    await objects.remove(transport.jetstream, keys.ORIGINALS_BUCKET, "a")
    assert await messages(transport) == 0
    with pytest.raises(ObjectNotFoundError):
        await transport.originals.get_info("a")
    await objects.remove(transport.jetstream, keys.ORIGINALS_BUCKET, "a")
    await put(transport, "a", b"again")
    assert await read(transport, "a") == b"again"
