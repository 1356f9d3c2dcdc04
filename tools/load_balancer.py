"""A load balancer for the gateways of `containers`, in place of a cluster's service."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Protocol

_GATEWAY_PORT = 8080


class Gateways(Protocol):
    """The gateways that share the connections."""

    def ready_gateways(self) -> dict[str, str]:
        """Return the addresses of the ready gateways, by pod name."""
        ...

    def is_draining(self, name: str) -> bool:
        """Return whether a pod will stop soon."""
        ...


@contextlib.asynccontextmanager
async def load_balancer(gateways: Gateways) -> AsyncIterator[str]:
    """Run a load balancer on a free port, and yield its URL.

    The gateways that are ready and do not drain get the connections in rotation.
    """
    ready: dict[str, str] = {}
    connections = 0

    async def watch() -> None:
        nonlocal ready
        while True:
            ready = await asyncio.to_thread(gateways.ready_gateways)
            await asyncio.sleep(0.3)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        # Each new connection also removes the draining pods, because `watch` can be seconds late on a busy machine.
        for name in [each for each in ready if gateways.is_draining(each)]:
            del ready[name]  # `watch` adds the next pod with this name when it is ready
        addresses = list(ready.values())
        first = connections % max(1, len(addresses))
        # A gateway that has just stopped refuses the connection; then the next gateway gets it.
        for address in [*addresses[first:], *addresses[:first]]:
            with contextlib.suppress(OSError):
                upstream = await asyncio.open_connection(address, _GATEWAY_PORT)
                try:
                    await asyncio.gather(_copy(reader, upstream[1]), _copy(upstream[0], writer))
                finally:
                    upstream[1].close()
                    writer.close()
                return
        writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(serve(reader, writer))
        tasks.add(task)  # the loop keeps only weak references
        task.add_done_callback(tasks.discard)

    tasks = {asyncio.create_task(watch())}
    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        running = list(tasks)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()
