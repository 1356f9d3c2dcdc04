"""Comments on streams that are silent while a model thinks.

Proxies close a connection that is silent for 50 to 60 seconds. In server-sent events clients ignore a comment;
one every 15 seconds is advised (https://html.spec.whatwg.org/multipage/server-sent-events.html#authoring-notes).
"""

import asyncio
from types import TracebackType
from typing import Self

from servicekit.tasks import ended
from starlette.types import Message, Send


class Heartbeat:
    """Sends a comment on a stream that has begun, after each silent interval.

    Args:
        send: Sends the messages of the response.
        beat: The comment; empty: nothing is sent.
        interval: Seconds of silence before a comment.
    """

    def __init__(self, send: Send, beat: bytes, interval: float) -> None:
        self._send = send
        self._beat: Message = {"type": "http.response.body", "body": beat, "more_body": True}
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
        """Start to watch for silence."""
        if self._beat["body"]:
            self._timer = self._loop.call_later(self._interval, self._look)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop to send comments."""
        if self._timer is not None:
            self._timer.cancel()
        if self._sending is not None:
            await ended(self._sending)

    def _look(self) -> None:
        now = self._loop.time()
        if now - self._last >= self._interval:
            self._last = now
            # If the client does not read, at most one comment waits.
            if self._sending is None or self._sending.done():
                self._sending = self._loop.create_task(self._send_beat())
        self._timer = self._loop.call_later(self._last + self._interval - now, self._look)

    async def _send_beat(self) -> None:
        await self._send(self._beat)
