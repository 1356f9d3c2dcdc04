"""The HTTP response of a model server, split into events, with limits of time and size."""

import asyncio
import contextlib
import math
from dataclasses import dataclass

import aiohttp

from generator.gathering import Gathering
from generator.openai.errors import bad_answer
from generator.openai.sse import SseParser
from generator.ports import too_slow

_EVENT_STREAM = "text/event-stream"
_DONE = b"[DONE]"
_DRAIN_SECONDS = 0.05
CONNECTION_ERRORS = (aiohttp.ClientError, OSError)


@dataclass(frozen=True, slots=True)
class Limits:
    """The time-outs and the size limit for a model server.

    Attributes:
        connect: The maximum number of seconds to establish a connection.
        first_byte: The maximum number of seconds until the body begins. The headers do not count, because some
            servers send them immediately. The body of a non-streamed answer begins when the answer is complete.
        idle: The maximum number of seconds between two pieces of a stream.
        max_bytes: The maximum number of bytes of an answer in one piece, and of one event of a stream.
    """

    connect: float = 5.0
    first_byte: float = 120.0
    idle: float = 60.0
    max_bytes: int = 8 * 1024 * 1024


class Reply:
    """The body of a model server's response.

    It reads only when the caller requests data, so that a slow caller slows the server down. One timer per response
    replaces a time-out around each read, because callers read a stream token by token.

    Args:
        response: The response with the unread body.
        limits: The time-outs and the size limit.
        begin_timeout: The number of seconds within which the body must begin.
        gathering: Decides when to pause the stream; None: never.

    Attributes:
        done: The stream has sent its end marker.
    """

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        limits: Limits,
        begin_timeout: float,
        gathering: Gathering | None = None,
    ) -> None:
        self._response = response
        self._gathering = gathering
        self._pauses_from = math.inf  # the time of the event loop from which the stream may pause
        self._content = response.content
        self._limits = limits
        self._parser = SseParser(limits.max_bytes)
        self._read_timer = _ReadTimer(response, begin_timeout)
        self._loop = asyncio.get_running_loop()
        self._begun = False
        self.done = False
        self._ended = False

    @property
    def is_stream(self) -> bool:
        """Return whether the response is a stream of events."""
        return self._response.headers.get("content-type", "").startswith(_EVENT_STREAM)

    async def read(self) -> bytes:
        """Wait for data and return the bytes that have arrived; return no bytes at the end.

        Raises:
            DeadlineExceeded: No data arrived in time.
            Unavailable: The connection broke.
        """
        self._read_timer.begin()
        try:
            piece = await self._content.readany()
        except CONNECTION_ERRORS as error:
            if not self._read_timer.exceeded:
                raise bad_answer("closed the connection before its answer was complete") from error
            if self._begun:
                raise too_slow(self._limits.idle, "sent nothing further") from error
            raise too_slow(self._limits.first_byte, "did not begin to answer") from error
        finally:
            self._read_timer.end()
        if not self._begun:
            self._begun = True
            self._read_timer.change(self._limits.idle)
        return piece

    async def payloads(self) -> list[bytes]:
        """Return the payloads of the next events that arrived together; an empty list at the end.

        In a busy process, this method pauses before a read, so that more events arrive together. It does not pause
        at the beginning of an answer.

        Raises:
            DeadlineExceeded: As in `read`.
            Unavailable: As in `read`, or an event is too large.
        """
        while not self._ended:
            if self._gathering is not None:
                await self._pause(self._gathering)
            piece = await self.read()
            if not piece:
                self._ended = True
                payloads = self._parser.close()
                self.done = payloads == [_DONE]
                return [] if self.done else payloads
            payloads = self._parser.feed(piece)
            if payloads:
                if _DONE in payloads:
                    self.done = self._ended = True
                    payloads = payloads[: payloads.index(_DONE)]
                if payloads:
                    return payloads
        return []

    async def _pause(self, gathering: Gathering) -> None:
        """Leave the socket unread until the next tick; return immediately if streams do not pause."""
        now = self._loop.time()
        if now < self._pauses_from:
            if self._begun and math.isinf(self._pauses_from):
                self._pauses_from = now + gathering.max_pause
            return
        tick, connection = gathering.next_tick(), self._response.connection
        if tick is None or connection is None:
            return
        transport = connection.transport
        if transport is None or transport.is_closing():
            return
        transport.pause_reading()
        try:
            await tick.wait()
        finally:
            with contextlib.suppress(RuntimeError):  # the transport was closed
                transport.resume_reading()

    async def read_all(self) -> bytes:
        """Return the body in one piece.

        Raises:
            DeadlineExceeded: As in `read`.
            Unavailable: As in `read`, or the body is too large.
        """
        pieces: list[bytes] = []
        size = 0
        while piece := await self.read():
            pieces.append(piece)
            size += len(piece)
            if size > self._limits.max_bytes:
                raise bad_answer(f"sent an answer of more than {self._limits.max_bytes} bytes")
        return b"".join(pieces)

    async def aclose(self) -> None:
        """Release the connection for reuse if the body was read to its end, else close the connection."""
        self._read_timer.close()
        if self.done and not self._content.is_eof():
            # The connection can be reused only after the few bytes after the last event are read.
            with contextlib.suppress(*CONNECTION_ERRORS, TimeoutError):
                async with asyncio.timeout(_DRAIN_SECONDS):
                    while await self._content.readany():
                        pass
        if self._content.is_eof():
            self._response.release()
        else:
            self._response.close()


class _ReadTimer:
    """Closes a response after a read has waited too long.

    Each response has one timer, because a new timer for each piece costs a tenth of the time to read the piece.

    Args:
        response: The response.
        seconds: The longest wait.

    Attributes:
        exceeded: A read waited too long, and the response is closed.
    """

    def __init__(self, response: aiohttp.ClientResponse, seconds: float) -> None:
        self.exceeded = False
        self._response = response
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._wait_began_at: float | None = None
        self._timer = self._loop.call_later(seconds, self._check)

    def begin(self) -> None:
        """Note the start of a wait."""
        self._wait_began_at = self._loop.time()

    def end(self) -> None:
        """Note the end of a wait."""
        self._wait_began_at = None

    def change(self, seconds: float) -> None:
        """Set the longest wait from now on."""
        self._seconds = seconds
        self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._check)

    def close(self) -> None:
        """Stop the timer."""
        self._timer.cancel()

    def _check(self) -> None:
        remaining = self._seconds
        if self._wait_began_at is not None:
            remaining -= self._loop.time() - self._wait_began_at
        if remaining > 0:
            self._timer = self._loop.call_later(remaining, self._check)
        else:
            self.exceeded = True
            self._response.close()
