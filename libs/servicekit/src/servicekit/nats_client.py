"""A NATS client that closes in bounded time, in any state of the server."""

import asyncio

import structlog
from nats.aio.client import DEFAULT_FLUSH_TIMEOUT, Client
from nats.errors import Error

from servicekit.tasks import ended

_log = structlog.get_logger(__name__)

_CLOSE_SECONDS = 2.0
_LOST = (OSError, RuntimeError, TimeoutError)  # RuntimeError: the event loop's, for a closed transport


class ClosingClient(Client):
    """A NATS client that always closes.

    The library's client sends buffered messages before it closes. If the server is frozen, the library's method
    never returns. If the server has just died, the method raises an error that would end the process.
    """

    async def flush(self, timeout: int = DEFAULT_FLUSH_TIMEOUT) -> None:  # noqa: ASYNC109  # as the library's
        """Return when the server has processed all earlier messages, including subscriptions.

        The library sends its ping before buffered messages, so this method sends the buffer first.
        """
        await self._flush_pending(force_flush=True)
        await super().flush(timeout)

    async def close(self) -> None:
        """Close the connection within four seconds; messages that the server has not received are lost."""
        reconnecting = self._reconnection_task
        error = await self._flush_error() if self.is_connected else None
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await super().close()
        except _LOST as closing:
            error = closing
        if error is not None:
            _log.warning("messages to nats were lost", error=str(error) or type(error).__name__)
        # The library cancels this task once, and can lose the cancellation: see `servicekit.tasks`.
        if reconnecting is not None and reconnecting is not asyncio.current_task():
            await ended(reconnecting)

    async def __aexit__(self, *exc_info: object) -> None:
        """Close the connection; see `close`."""
        await self.close()

    async def _flush_error(self) -> Exception | None:
        """Wait until the server has processed all messages; return the error if that fails.

        The kernel resets a socket that is closed with unread data. The server would then lose messages.
        """
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.flush()
        except (Error, *_LOST) as error:
            return error
        return None
