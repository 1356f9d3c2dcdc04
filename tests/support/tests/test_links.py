import asyncio
from collections.abc import AsyncIterator

import pytest
from causeway_testing.links import Link, Rubbish


@pytest.fixture
async def echo() -> AsyncIterator[int]:
    """A server that sends back what it gets; its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_what_passes_and_what_does_not(echo: int) -> None:
    """It passes bytes on, holds them back and lets them go, changes them, and breaks connections; new ones work."""
    async with Link.to(echo) as link:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        link.stop()
        writer.write(b"two")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.readexactly(3), 0.1)
        link.go_on()
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


async def test_an_end_does_not_pass_where_nothing_does(echo: int) -> None:
    """Who is kept from the other side does not learn that it has gone."""
    async with Link.to(echo) as link:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        link.stop()
        writer.write_eof()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(), 0.1)
        link.go_on()
        assert await reader.read() == b""
        writer.close()


async def test_nobody_behind_it() -> None:
    """The connection ends at once."""
    async with Rubbish.started() as gone:
        port = gone.port
    async with Link.to(port) as link:
        reader, writer = await asyncio.open_connection("127.0.0.1", link.port)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


async def test_rubbish() -> None:
    """Whatever is asked, it says the same, and counts."""
    async with Rubbish.started() as server:
        server.says = b"\x00\xff"
        for number in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await reader.read() == b"\x00\xff"
            assert server.asked == number + 1
            writer.close()
