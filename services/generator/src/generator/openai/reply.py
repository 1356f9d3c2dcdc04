"""A model server's answer: bytes in as they come, cut into events, with patience and size bounded."""

import asyncio
import contextlib
import math
from dataclasses import dataclass

import aiohttp

from generator.gathering import Gathering
from generator.openai.errors import ended_early, too_slow
from generator.openai.sse import SseParser

_EVENT_STREAM = "text/event-stream"
_DONE = b"[DONE]"
_DRAIN_SECONDS = 0.05
CONNECTION_ERRORS = (aiohttp.ClientError, OSError)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to wait for a model server, in seconds, and how much to take from it.

    Attributes:
        connect: For the connection.
        first_byte: Until the answer begins, not just its head, which some servers send at once; an answer in one
            piece begins when it is complete.
        idle: For each next piece of a stream.
        most_bytes: Largest answer in one piece, and largest event of a stream.
    """

    connect: float = 5.0
    first_byte: float = 120.0
    idle: float = 60.0
    most_bytes: int = 8 * 1024 * 1024


class Reply:
    """An answer of the model server whose head has come.

    What is not asked for is not read, so that the server has to wait, too. Plain methods and one timer for a whole
    answer, because a stream is read token by token.

    Args:
        response: Its head, and the body to be read.
        limits: How long to wait, and how much to take.
        begin_within: Seconds that are left until its body has to begin.
        gathering: When a stream is left unread; None: never.

    Attributes:
        done: The stream said that it is complete.
    """

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        limits: Limits,
        begin_within: float,
        gathering: Gathering | None = None,
    ) -> None:
        self._response = response
        self._gathering = gathering
        self._pauses_from = math.inf
        self._content = response.content
        self._limits = limits
        self._parser = SseParser(limits.most_bytes)
        self._patience = _Patience(response, begin_within)
        self._loop = asyncio.get_running_loop()
        self._begun = False
        self.done = False
        self._ended = False

    @property
    def streams(self) -> bool:
        """It comes as events, not in one piece."""
        return self._response.headers.get("content-type", "").startswith(_EVENT_STREAM)

    async def read(self) -> bytes:
        """What has arrived of the body, waiting for the first byte of it; empty at the end.

        Raises:
            DeadlineExceeded: Nothing came for too long.
            Unavailable: The connection broke.
        """
        self._patience.begin()
        try:
            piece = await self._content.readany()
        except CONNECTION_ERRORS as error:
            if not self._patience.exceeded:
                raise ended_early("broke off its answer") from error
            if self._begun:
                raise too_slow(self._limits.idle, "sent nothing further") from error
            raise too_slow(self._limits.first_byte, "did not begin to answer") from error
        finally:
            self._patience.end()
        if not self._begun:
            self._begun = True
            self._patience.change(self._limits.idle)
        return piece

    async def payloads(self) -> list[bytes]:
        """The payloads of the next events of the stream, those that came together; none after the last one.

        Where the process is busy it leaves the stream unread for a while before, so that more come together; not
        in the first moments of an answer. What is read is returned at once.

        Raises:
            DeadlineExceeded: As `read`.
            Unavailable: As `read`, or an event is larger than what is taken.
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
        """Leave the socket alone until the next tick, where there is one."""
        now = self._loop.time()
        if now < self._pauses_from:
            if self._begun and math.isinf(self._pauses_from):
                self._pauses_from = now + gathering.longest
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
            with contextlib.suppress(RuntimeError):  # it was closed meanwhile
                transport.resume_reading()

    async def whole(self) -> bytes:
        """The body in one piece.

        Raises:
            DeadlineExceeded: As `read`.
            Unavailable: As `read`, or it is larger than what is taken.
        """
        read: list[bytes] = []
        size = 0
        while piece := await self.read():
            read.append(piece)
            size += len(piece)
            if size > self._limits.most_bytes:
                raise ended_early(f"sent an answer of more than {self._limits.most_bytes} bytes")
        return b"".join(read)

    async def aclose(self) -> None:
        """Gives the connection back if the answer was read to its end, else closes it."""
        self._patience.close()
        if self.done and not self._content.is_eof():
            # What little follows the last event, so that the connection can be used again.
            with contextlib.suppress(*CONNECTION_ERRORS, TimeoutError):
                async with asyncio.timeout(_DRAIN_SECONDS):
                    while await self._content.readany():
                        pass
        if self._content.is_eof():
            self._response.release()
        else:
            self._response.close()


class _Patience:
    """Closes a response whose reader has waited too long.

    One timer for a whole answer: arming one for each piece costs a tenth of reading the piece.

    Args:
        response: What is read.
        seconds: How long a reader may wait.

    Attributes:
        exceeded: The response was closed.
    """

    def __init__(self, response: aiohttp.ClientResponse, seconds: float) -> None:
        self.exceeded = False
        self._response = response
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._timer = self._loop.call_later(seconds, self._look)

    def begin(self) -> None:
        """Somebody waits from now on."""
        self._since = self._loop.time()

    def end(self) -> None:
        """Nobody waits."""
        self._since = None

    def change(self, seconds: float) -> None:
        """Sets how long each later wait may be."""
        self._seconds = seconds
        self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._look)

    def close(self) -> None:
        """Lets the response be."""
        self._timer.cancel()

    def _look(self) -> None:
        left = self._seconds
        if self._since is not None:
            left -= self._loop.time() - self._since
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self.exceeded = True
            self._response.close()
