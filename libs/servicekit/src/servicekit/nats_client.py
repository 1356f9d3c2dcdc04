"""The client of NATS, whose end does not depend on the server's."""

import asyncio

import structlog
from nats.aio.client import DEFAULT_FLUSH_TIMEOUT, Client
from nats.errors import Error

from servicekit.tasks import ended

_log = structlog.get_logger(__name__)

_CLOSE_SECONDS = 2.0
_LOST = (OSError, RuntimeError, TimeoutError)  # RuntimeError: the event loop's, of a closed transport


class ClosingClient(Client):
    """A client that a process can always leave.

    The library's own sends what waits before it closes: to a server that is frozen for ever, and to one that has
    just died with an error that ends the process.
    """

    async def flush(self, timeout: int = DEFAULT_FLUSH_TIMEOUT) -> None:  # noqa: ASYNC109  # as the library's
        """Returns when the server has processed what was sent before: subscriptions, too.

        The library sends its ping before what waits, and the answer would say nothing of that.
        """
        await self._flush_pending(force_flush=True)
        await super().flush(timeout)

    async def close(self) -> None:
        """Closes the connection within four seconds; what the server has not taken by then is dropped."""
        reconnecting = self._reconnection_task
        error = await self._flush_error() if self.is_connected else None
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await super().close()
        except _LOST as closing:
            error = closing
        if error is not None:
            _log.warning("not everything was sent to nats", error=str(error) or type(error).__name__)
        # The library cancels it once, and cancellations get lost: see `servicekit.tasks`.
        if reconnecting is not None and reconnecting is not asyncio.current_task():
            await ended(reconnecting)

    async def __aexit__(self, *exc_info: object) -> None:
        """Closes the connection as `close` does."""
        await self.close()

    async def _flush_error(self) -> Exception | None:
        """Waits until the server has processed what was sent; returns the error of a server that does not.

        To close a socket with something unread resets it, and the server would lose what it has not read.
        """
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.flush()
        except (Error, *_LOST) as error:
            return error
        return None
