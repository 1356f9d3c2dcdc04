"""The client of NATS, whose end does not depend on the server's."""

import asyncio

import structlog
from nats.aio.client import Client

from servicekit.tasks import ended

_log = structlog.get_logger(__name__)

_CLOSE_SECONDS = 2.0


class ClosingClient(Client):
    """A client that a process can always leave.

    The library's own sends what waits before it closes: to a server that is frozen for ever, and to one that has
    just died with an error that ends the process.
    """

    async def close(self) -> None:
        """Closes the connection within two seconds; what the server has not taken by then is dropped."""
        reconnecting = self._reconnection_task
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await super().close()
        except (
            OSError,
            RuntimeError,
            TimeoutError,
        ) as error:  # RuntimeError: the event loop's, of a closed transport
            _log.warning("not everything was sent to nats", error=str(error) or type(error).__name__)
        # The library cancels it once, and cancellations get lost: see `servicekit.tasks`.
        if reconnecting is not None and reconnecting is not asyncio.current_task():
            await ended(reconnecting)
