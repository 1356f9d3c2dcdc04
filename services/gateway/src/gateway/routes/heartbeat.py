"""Sends comments on streams while the model sends no events.

Proxies close a connection that is silent for 50 to 60 seconds. Clients of server-sent events ignore comments. The
standard advises a comment every 15 seconds
(https://html.spec.whatwg.org/multipage/server-sent-events.html#authoring-notes).
"""

import asyncio
from types import TracebackType
from typing import Self

from servicekit.tasks import cancel_and_wait
from starlette.types import Message, Send


class Heartbeat:
    """Sends a comment on a stream after each silent interval.

    Args:
        send: Sends the messages of the response.
        comment: The comment; empty: no comments are sent.
        interval: Seconds of silence before a comment.
    """

    def __init__(self, send: Send, comment: bytes, interval: float) -> None:
        self._send = send
        self._comment: Message = {"type": "http.response.body", "body": comment, "more_body": True}
        self._interval = interval
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._sending: asyncio.Task[None] | None = None

    async def send(self, message: Message) -> None:
        """Send a message of the answer."""
        self._last = self._loop.time()
        await self._send(message)

    async def __aenter__(self) -> Self:
        """Start the timer of the first comment."""
        if self._comment["body"]:
            self._timer = self._loop.call_later(self._interval, self._check)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop sending comments."""
        if self._timer is not None:
            self._timer.cancel()
        if self._sending is not None:
            await cancel_and_wait(self._sending)

    def _check(self) -> None:
        now = self._loop.time()
        if now - self._last >= self._interval:
            self._last = now
            # If the client does not read, at most one comment waits.
            if self._sending is None or self._sending.done():
                self._sending = self._loop.create_task(self._send_comment())
        self._timer = self._loop.call_later(self._last + self._interval - now, self._check)

    async def _send_comment(self) -> None:
        await self._send(self._comment)
