"""A NATS client that closes in bounded time, in any state of the server."""

import asyncio

import structlog
from nats.aio.client import DEFAULT_FLUSH_TIMEOUT, Client
from nats.errors import Error

from servicekit.tasks import cancel_and_wait

_log = structlog.get_logger(__name__)

_CLOSE_SECONDS = 4.0
_FLUSH_SECONDS = 2.0
# The event loop raises RuntimeError for a closed transport.
_CONNECTION_ERRORS = (OSError, RuntimeError, TimeoutError)


class ClosingClient(Client):
    """A NATS client that always closes.

    The library's client sends buffered messages before it closes. If the server is frozen, the library's method
    never returns. If the server has just died, the method raises an error that would end the process.
    """

    async def flush(self, timeout: int = DEFAULT_FLUSH_TIMEOUT) -> None:  # noqa: ASYNC109  # the library's signature
        """Return when the server has processed all earlier messages, including subscriptions.

        The library sends its ping before buffered messages, so this method sends the buffer first.
        """
        task = asyncio.current_task()
        earlier = 0 if task is None else task.cancelling()
        await self._flush_pending(force_flush=True)
        # The library's method ignores a cancellation. A task that was cancelled earlier may still flush and close.
        if task is not None and task.cancelling() > earlier:
            raise asyncio.CancelledError
        await super().flush(timeout)

    async def close(self) -> None:
        """Close the connection within four seconds; messages that the server has not received are lost."""
        deadline = asyncio.get_running_loop().time() + _CLOSE_SECONDS
        reconnecting = self._reconnection_task
        error = await self._flush_error() if self.is_connected else None
        try:
            async with asyncio.timeout_at(deadline):
                await super().close()
        except _CONNECTION_ERRORS as closing:
            error = closing
        if error is not None:
            _log.warning("messages to nats may be lost", error=str(error) or type(error).__name__)
        # The library cancels this task once, and can lose the cancellation: see `servicekit.tasks`.
        if reconnecting is not None and reconnecting is not asyncio.current_task():
            try:
                async with asyncio.timeout_at(deadline):
                    await cancel_and_wait(reconnecting)
            except TimeoutError:
                _log.warning("the attempt to reconnect to nats has not ended")

    async def __aexit__(self, *exc_info: object) -> None:
        """Close the connection; see `close`."""
        await self.close()

    async def _flush_error(self) -> Exception | None:
        """Wait until the server has processed all messages; return the error if that fails.

        The kernel resets a socket that is closed with unread data. The server would then lose messages.
        """
        try:
            async with asyncio.timeout(_FLUSH_SECONDS):
                await self.flush()
        except (Error, *_CONNECTION_ERRORS) as error:
            return error
        return None
