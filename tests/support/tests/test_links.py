import asyncio
from collections.abc import AsyncIterator

import pytest
from causeway_testing.links import FixedResponseServer, Link


@pytest.fixture
async def echo() -> AsyncIterator[int]:
    """Start a server that returns its input, and yield its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_link_holds_corrupts_and_breaks_a_connection(echo: int) -> None:
    """A link passes bytes on, holds and releases them, corrupts them, and breaks connections."""
    async with Link.to(echo) as link:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        link.stop()
        writer.write(b"two")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(3), 0.1)
        link.resume()
        assert await reader.readexactly(3) == b"two"
        link.garbled = True
        writer.write(b"abc")
        assert await reader.readexactly(3) != b"abc"
        link.garbled = False
        await link.cut()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
        again, writing = await asyncio.open_connection("127.0.0.1", link.port)
        writing.write(b"three")
        assert await again.readexactly(5) == b"three"
        writing.close()
        assert await again.read() == b""


async def test_a_stopped_link_holds_the_end_of_a_connection(echo: int) -> None:
    """A stopped link does not pass the end of a connection on."""
    async with Link.to(echo) as link:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        link.stop()
        writer.write_eof()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(), 0.1)
        link.resume()
        assert await reader.read() == b""
        writer.close()


async def test_a_link_without_a_server_closes_connections() -> None:
    """Without a server the connection ends at once."""
    async with FixedResponseServer.started() as gone:
        port = gone.port
    async with Link.to(port) as link:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


async def test_the_server_of_invalid_answers_counts_its_connections() -> None:
    """The server sends the same answer to all input, and counts the connections."""
    async with FixedResponseServer.started() as server:
        server.response = b"\x00\xff"
        for number in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await reader.read() == b"\x00\xff"
            assert server.requests == number + 1
            writer.close()
