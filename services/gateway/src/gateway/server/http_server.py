"""The HTTP server: uvicorn with the gateway's protocol."""

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncIterator

import structlog
import uvicorn
from servicekit.errors import Unavailable
from starlette.types import ASGIApp

from gateway.server.connections import Connections
from gateway.server.http_protocol import HttpLimits, HttpProtocol

_log = structlog.get_logger(__name__)
_MAX_CONNECTIONS = 10_000


class HttpServer(uvicorn.Server):
    """uvicorn without its own signal handlers, because the process handles the signals for all its servers.

    Args:
        app: The ASGI application.
        grace: Maximum seconds for which running answers continue when the server stops, at least 1.
        limits: The limits of requests and clients. None means the defaults.
        connections: The open connections of the process. None means a new limit of 10,000 connections.
    """

    def __init__(
        self,
        app: ASGIApp,
        grace: float,
        limits: HttpLimits | None = None,
        connections: Connections | None = None,
    ) -> None:
        limits = limits or HttpLimits()
        protocol = functools.partial(
            HttpProtocol, limits, connections if connections is not None else Connections(_MAX_CONNECTIONS)
        )
        super().__init__(
            uvicorn.Config(
                app,
                http=protocol,  # type: ignore[arg-type]  # uvicorn only calls it
                ws="none",
                loop="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=limits.idle,  # type: ignore[arg-type]  # uvicorn passes it to call_later
                timeout_graceful_shutdown=max(1, int(grace)),
            )
        )

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]  # as in the base class
        """Install no signal handlers."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Port 0 selects a free port.

    Raises:
        Unavailable: The address is in use, or does not belong to this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise Unavailable(f"Cannot listen on {host}, port {port}: {error.strerror or error}.") from None


@contextlib.asynccontextmanager
async def served(
    app: ASGIApp, host: str, port: int | None, grace: float, limits: HttpLimits, connections: Connections
) -> AsyncIterator[None]:
    """Serve an application on its own port until the block ends. Do nothing if ``port`` is None."""
    if port is None:
        yield
        return
    with listen(host, port) as listener:
        server = HttpServer(app, grace, limits, connections)
        serving = asyncio.create_task(server.serve([listener]))
        _log.info("serving health", host=host, port=listener.getsockname()[1])
        try:
            yield
        finally:
            server.should_exit = True
            await serving
