"""The chat routes: raw ASGI, one endpoint a dialect and path.

FastAPI's request and response machinery is left aside here, because every token of every answer passes through:
the body is read once, the events are written as bytes.
"""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import Any

import structlog
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, Internal, UnsupportedMedia, http_status
from servicekit.principal import Principal

from gateway.domain import Step
from gateway.pipeline import Pipeline
from gateway.protocols.exchange import Dialect, Exchange

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_log = structlog.get_logger(__name__)
_JSON = b"application/json"


class ChatEndpoint:
    """An ASGI application that answers one dialect at one path.

    Args:
        dialect: Its wire format.
        pipeline: Answers.
        timeout: Seconds a whole answer may take.
        streaming: What the path says of streaming; None where the body decides.
    """

    def __init__(
        self, dialect: Dialect, pipeline: Pipeline, *, timeout: float, streaming: bool | None = None
    ) -> None:
        self._dialect = dialect
        self._pipeline = pipeline
        self._timeout = timeout
        self._streaming = streaming

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request; a client that leaves stops everything that runs for it."""
        try:
            body = await _body(scope, receive)
        except _ClientLeft:
            return
        except CausewayError as error:
            await self._refuse(send, error)
            return
        answering = asyncio.ensure_future(self._answer(scope, body, send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not answering.done():
                answering.cancel()
        await asyncio.wait((answering, leaving))
        if not answering.cancelled():
            answering.result()

    async def _answer(self, scope: Scope, body: bytes, send: Send) -> None:
        principal: Principal = scope["state"]["principal"]
        try:
            exchange = self._dialect.parse(body, principal, streaming=self._streaming)
            deadline = Deadline.after(self._timeout)
            if exchange.streaming:
                await self._stream(exchange, deadline, send)
            else:
                await self._whole(exchange, deadline, send)
        except CausewayError as error:
            await self._refuse(send, error)

    async def _whole(self, exchange: Exchange, deadline: Deadline, send: Send) -> None:
        async with aclosing(self._pipeline.answer(exchange.turn, deadline)) as events:
            async for batch in events:
                exchange.take(batch)
        headers = []
        if exchange.steps:
            headers.append((b"server-timing", server_timing(exchange.steps)))
        await _respond(send, 200, self._dialect.media.unary, exchange.complete(), headers)

    async def _stream(self, exchange: Exchange, deadline: Deadline, send: Send) -> None:
        async with aclosing(self._pipeline.answer(exchange.turn, deadline)) as events:
            # Until the first events are there the answer can still be a status.
            first = await anext(events)
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [
                        (b"content-type", self._dialect.media.stream),
                        (b"cache-control", b"no-cache"),
                        (b"x-accel-buffering", b"no"),
                    ],
                }
            )
            try:
                await _write(send, exchange.render(first))
                async for batch in events:
                    await _write(send, exchange.render(batch))
            except CausewayError as error:
                _log.warning("answer broke off", dialect=self._dialect.name, error=error.message, exc_info=error)
                await _write(send, exchange.render_failure(error))
            except Exception as error:  # the boundary: the client gets the protocol's end, the log the cause
                _log.exception("answer broke off", dialect=self._dialect.name, error=str(error))
                await _write(send, exchange.render_failure(Internal()))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _refuse(self, send: Send, error: CausewayError) -> None:
        headers = []
        if error.retry_after is not None:
            headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after))))
        await _respond(send, http_status(error), _JSON, self._dialect.error(error), headers)


def server_timing(steps: tuple[Step, ...]) -> bytes:
    """The steps as a ``Server-Timing`` header (W3C Server Timing), durations in milliseconds."""
    return ", ".join(f"{step.name.replace(' ', '-')};dur={step.duration_ms:g}" for step in steps).encode()


class _ClientLeft(Exception):
    """The connection closed before the request was complete."""


async def _body(scope: Scope, receive: Receive) -> bytes:
    headers = dict(scope["headers"])
    media = headers.get(b"content-type", b"").split(b";")[0].strip().lower()
    if media not in (_JSON, b"") and not media.endswith(b"+json"):
        raise UnsupportedMedia(
            f"Content-Type must be application/json, not {media.decode('latin-1')}.", field="content-type"
        )
    pieces = []
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _ClientLeft
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(pieces)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _write(send: Send, body: bytes) -> None:
    if body:
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def _respond(send: Send, status: int, media: bytes, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    headers = [(b"content-type", media), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
