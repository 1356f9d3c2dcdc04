"""TCP proxies that delay, hold, break or corrupt a connection between two processes, and a server that answers all
input with the same bytes.

In a test::

    async with Link.to(port) as link:  # the client connects to link.port instead of port
        link.stop()
        ...
        link.resume()
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Self

_HOST = "127.0.0.1"
_PIECE = 64 * 1024


class Link:
    """A TCP proxy on a free loopback port, in front of another loopback port or a Unix socket.

    Attributes:
        delay: The delay of each piece in seconds.
        garbled: Whether the bytes to the client are corrupted.
    """

    def __init__(self, target: int | str) -> None:
        self.delay = 0.0
        self.garbled = False
        self._target = target
        self._passes = asyncio.Event()
        self._passes.set()
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def to(cls, target: int | str) -> AsyncIterator[Self]:
        """Open a link to a port, or to the path of a socket."""
        link = cls(target)
        link._server = await asyncio.start_server(link._accept, _HOST, 0)
        try:
            yield link
        finally:
            link._server.close()
            await link._end()
            await link._server.wait_closed()

    @property
    def port(self) -> int:
        """Return the port of the link."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def stop(self) -> None:
        """Hold all bytes in both directions. Connections stay open, and new connections get no bytes."""
        self._passes.clear()

    def resume(self) -> None:
        """Deliver the held bytes, as after a network outage."""
        self._passes.set()

    async def cut(self) -> None:
        """Break every connection. New connections are possible."""
        await self._end()

    async def _end(self) -> None:
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connect(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            await self._passes.wait()
            server_reader, server_writer = await self._connect_to_server()
            writers.append(server_writer)
            directions = [
                asyncio.create_task(self._copy(reader, server_writer, to_client=False)),
                asyncio.create_task(self._copy(server_reader, writer, to_client=True)),
            ]
            try:
                await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for direction in directions:
                    direction.cancel()
                await asyncio.gather(*directions, return_exceptions=True)
        except OSError:
            pass  # no server listens
        finally:
            for each in writers:
                each.transport.abort()

    async def _connect_to_server(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._target, str):
            return await asyncio.open_unix_connection(self._target)
        return await asyncio.open_connection(_HOST, self._target)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, to_client: bool) -> None:
        while data := await reader.read(_PIECE):
            await asyncio.sleep(self.delay)
            await self._passes.wait()
            writer.write(bytes(each ^ 0x5A for each in data) if to_client and self.garbled else data)
            await writer.drain()
        await self._passes.wait()  # the end of a connection is held as well
        writer.close()
        await writer.wait_closed()


class FixedResponseServer:
    """A server that answers all input with the same bytes, and closes the connection.

    Attributes:
        response: The bytes of each answer.
        port: The port of the server.
        requests: The number of connections that sent input.
    """

    def __init__(self) -> None:
        self.response = b""
        self.port = 0
        self.requests = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def started(cls) -> AsyncIterator[Self]:
        """Start a server on a free port of the loopback interface."""
        fixed = cls()
        server = await asyncio.start_server(fixed._answer, _HOST, 0)
        fixed.port = server.sockets[0].getsockname()[1]
        async with server:
            yield fixed

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            if await reader.read(_PIECE):
                self.requests += 1
                writer.write(self.response)
                await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
