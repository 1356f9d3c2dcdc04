"""A model server's answer: bytes in as they come, cut into events, with patience and size bounded."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import aiohttp
import httpx2
from servicekit.errors import CausewayError

from generator.openai.errors import ended_early, too_slow
from generator.openai.sse import SseParser

_EVENT_STREAM = "text/event-stream"
_DONE = b"[DONE]"
_DRAIN_SECONDS = 0.05
# What the client library raises for a broken connection; some of what lies beneath it comes through as it is.
CONNECTION_ERRORS = (httpx2.HTTPError, aiohttp.ClientError, OSError)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to wait for a model server, in seconds, and how much to take from it.

    Attributes:
        connect: For the connection.
        first_byte: For the head of the answer; an answer in one piece begins only when it is complete.
        idle: For each next piece of a stream.
        most_bytes: Largest answer in one piece, and largest event of a stream.
    """

    connect: float = 5.0
    first_byte: float = 120.0
    idle: float = 60.0
    most_bytes: int = 8 * 1024 * 1024


class Reply:
    """An answer of the model server whose head has come.

    Attributes:
        done: The stream said that it is complete.
    """

    def __init__(self, response: httpx2.Response, limits: Limits) -> None:
        self._response = response
        self._limits = limits
        self.done = False

    @property
    def streams(self) -> bool:
        """It comes as events, not in one piece."""
        return self._response.headers.get("content-type", "").startswith(_EVENT_STREAM)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives. What is not asked for is not read, so that the server has to wait, too.

        Raises:
            DeadlineExceeded: Nothing came for too long.
            Unavailable: The connection broke.
        """
        async with contextlib.aclosing(self._response.aiter_bytes()) as pieces:
            while True:
                try:
                    async with asyncio.timeout(self._limits.idle):
                        piece = await anext(pieces, None)
                except TimeoutError as error:
                    raise too_slow(self._limits.idle, "sent nothing further") from error
                except CONNECTION_ERRORS as error:
                    raise ended_early("broke off its answer") from error
                if piece is None:
                    return
                yield piece

    async def payloads(self) -> AsyncGenerator[list[bytes], None]:
        """The payloads of the stream's events, those of one read together, up to the one that says it is done.

        Raises:
            DeadlineExceeded: As `pieces`.
            Unavailable: As `pieces`, or an event is larger than what is taken.
        """
        parser = SseParser(self._limits.most_bytes)
        async with contextlib.aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                payloads = parser.feed(piece)
                if _DONE in payloads:
                    self.done = True
                    yield payloads[: payloads.index(_DONE)]
                    await _drained(pieces)
                    return
                if payloads:
                    yield payloads
        left = parser.close()
        self.done = left == [_DONE]
        if left and not self.done:
            yield left

    async def whole(self) -> bytes:
        """The body in one piece.

        Raises:
            DeadlineExceeded: As `pieces`.
            Unavailable: As `pieces`, or it is larger than what is taken.
        """
        read: list[bytes] = []
        size = 0
        async with contextlib.aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                read.append(piece)
                size += len(piece)
                if size > self._limits.most_bytes:
                    raise ended_early(f"sent an answer of more than {self._limits.most_bytes} bytes")
        return b"".join(read)


async def _drained(pieces: AsyncGenerator[bytes, None]) -> None:
    """Reads what little follows the last event, so that the connection can be used again; else it is closed."""
    with contextlib.suppress(CausewayError, TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in pieces:
                pass
