"""The chat routes: raw ASGI, one endpoint a dialect and path.

FastAPI's request and response machinery is left aside here, because every token of every answer passes through:
the body is read once, the events are written as bytes.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing

import structlog
from servicekit.deadline import Deadline
from servicekit.errors import (
    CausewayError,
    DeadlineExceeded,
    Internal,
    MethodNotAllowed,
    UnsupportedMedia,
    http_status,
)
from servicekit.principal import Principal
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.domain import Done, Step
from gateway.frontends import Frontend
from gateway.pipeline import Pipeline
from gateway.protocols.exchange import ChatRequest, Dialect, Exchange
from gateway.responses import JSON, refuse, respond

_log = structlog.get_logger(__name__)

# The services' own deadlines come first, because their errors say more.
_SLACK = 1.0


class ChatRoutes:
    """Answers the chat paths; what is asked of others goes to another application.

    A look-up, because the matching of a router and the layers that a framework puts around each of its routes would
    cost a sixth of what a short answer does.

    Args:
        endpoints: By path.
        others: All other paths.
    """

    def __init__(self, endpoints: Mapping[str, "ChatEndpoint"], others: ASGIApp) -> None:
        self._endpoints = endpoints
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        endpoint = self._endpoints.get(scope["path"]) if scope["type"] == "http" else None
        if endpoint is None:
            await self._others(scope, receive, send)
        else:
            scope["http.route"] = scope["path"]
            await endpoint(scope, receive, send)


class ChatEndpoint:
    """An ASGI application that answers one dialect at one path.

    Args:
        dialect: Its wire format.
        pipeline: Answers.
        frontend: Gives the profile that its requests belong to.
        timeout: Seconds a whole answer may take, once the request is there.
        streaming: What the path says of streaming; None where the body decides.

    Attributes:
        dialect: As given.
    """

    def __init__(
        self,
        dialect: Dialect,
        pipeline: Pipeline,
        frontend: Callable[[], Frontend],
        *,
        timeout: float,
        streaming: bool | None = None,
    ) -> None:
        self.dialect = dialect
        self._pipeline = pipeline
        self._frontend = frontend
        self._timeout = timeout
        self._streaming = streaming

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request; a client that leaves stops everything that runs for it."""
        if scope["method"] != "POST":
            wrong = MethodNotAllowed(f"{scope['path']} does not take {scope['method']}.")
            await respond(send, http_status(wrong), JSON, self.dialect.error(wrong), [(b"allow", b"POST")])
            return
        try:
            body = await _body(scope, receive)
        except _ClientLeft:
            return
        except CausewayError as error:
            await refuse(send, error, self.dialect.error(error))
            return
        tasks = (
            asyncio.ensure_future(self._answer(scope["state"]["principal"], body, send)),
            asyncio.ensure_future(_left(receive)),
        )
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        answering, _ = tasks
        if not answering.cancelled():
            answering.result()

    async def _answer(self, principal: Principal, body: bytes, send: Send) -> None:
        begun = False

        async def send_noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        failure: CausewayError
        try:
            async with asyncio.timeout(self._timeout + _SLACK):
                asked = ChatRequest(body, principal, self._frontend(), self._streaming)
                exchange = self.dialect.parse(asked)
                deadline = Deadline.after(self._timeout)
                if exchange.streaming:
                    await self._stream(exchange, deadline, send_noted)
                else:
                    await self._whole(exchange, deadline, send_noted)
            return
        except CausewayError as error:
            failure = error
        except TimeoutError as error:
            failure = DeadlineExceeded("The request took longer than its deadline.")
            failure.__cause__ = error
        except Exception as error:  # the boundary: the client gets the dialect's answer, the log the cause
            _log.exception("answer failed", dialect=self.dialect.name, error=str(error))
            failure = Internal()
        if begun:
            # The client reads no more, or is too slow: nothing that was written now would reach it in time.
            _log.warning("answer broke off", dialect=self.dialect.name, error=failure.message)
            return
        await refuse(send, failure, self.dialect.error(failure))

    async def _whole(self, exchange: Exchange, deadline: Deadline, send: Send) -> None:
        steps: tuple[Step, ...] = ()
        async with aclosing(self._pipeline.answer(exchange.turn, deadline)) as events:
            async for batch in events:
                exchange.take(batch)
                if isinstance(last := batch[-1], Done):
                    steps = last.steps
        headers = [(b"server-timing", server_timing(steps))]
        await respond(send, 200, self.dialect.media.unary, exchange.complete(), headers)

    async def _stream(self, exchange: Exchange, deadline: Deadline, send: Send) -> None:
        async with aclosing(self._pipeline.answer(exchange.turn, deadline)) as events:
            # Until the first events are there the answer can still be a status.
            first = exchange.render(await anext(events))
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [
                        (b"content-type", self.dialect.media.stream),
                        (b"cache-control", b"no-cache"),
                        (b"x-accel-buffering", b"no"),
                    ],
                }
            )
            try:
                await _write(send, first)
                async for batch in events:
                    await _write(send, exchange.render(batch))
            except CausewayError as error:
                _log.warning("answer broke off", dialect=self.dialect.name, error=error.message, exc_info=error)
                await _write(send, exchange.render_failure(error))
            except Exception as error:  # the boundary, as above
                _log.exception("answer broke off", dialect=self.dialect.name, error=str(error))
                await _write(send, exchange.render_failure(Internal()))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def server_timing(steps: tuple[Step, ...]) -> bytes:
    """The steps as a ``Server-Timing`` header (W3C Server Timing), durations in milliseconds."""
    return ", ".join(f"{step.name.replace(' ', '-')};dur={step.duration_ms:g}" for step in steps).encode()


class _ClientLeft(Exception):
    """The connection closed before the request was complete."""


async def _body(scope: Scope, receive: Receive) -> bytes:
    media = dict(scope["headers"]).get(b"content-type", b"").split(b";")[0].strip().lower()
    if media not in (JSON, b"") and not media.endswith(b"+json"):
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
