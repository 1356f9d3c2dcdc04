"""What every request passes through, as pure ASGI: tracing, limits of bodies, the last error boundary.

FastAPI's dependencies do not see raw ASGI routes, so nothing that must hold for all routes may be one of them. A
further layer is a class like these, put around the others in `main.build_app`. It refuses by raising an error of
the tree, which the outermost layer answers in the words of the dialect that is spoken there. `admission` says how
much is taken on at once, `identity.layers` who asks, `quotas.layer` how much that one may.
"""

import asyncio
import re
from collections.abc import Sequence

import structlog
from opentelemetry.trace import Span, SpanKind, StatusCode, format_trace_id
from servicekit import telemetry
from servicekit.errors import (
    CausewayError,
    DeadlineExceeded,
    Internal,
    InvalidRequest,
    PayloadTooLarge,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.responses import ErrorBody, refuse

_log = structlog.get_logger(__name__)
_tracer = telemetry.tracer(__name__)
_SERVER_FAULT = 500
_TRACE_HEADERS = (b"traceparent", b"tracestate")
_MOST_DIGITS = 18

HEALTH = ("/health", "/healthz", "/readyz", "/metrics")
"""Paths that are always let in, and are neither logged nor recorded."""


class Tracing:
    """A span for each request, continued from the client's ``traceparent``; ``x-trace-id`` on every response.

    What nobody below caught becomes a 500 that tells nothing of the inside.

    Args:
        app: What is below.
        error_body: Writes the errors that no route has answered.
    """

    def __init__(self, app: ASGIApp, error_body: ErrorBody) -> None:
        self._app = app
        self._error_body = error_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        carrier = {
            name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _TRACE_HEADERS
        }
        path, method = scope["path"], scope["method"]
        status = 0
        with _tracer.start_as_current_span(
            method,
            context=telemetry.extract(carrier),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method, "url.path": path},
        ) as span:
            trace_id = format_trace_id(span.get_span_context().trace_id).encode()
            scope.setdefault("state", {})["trace_id"] = trace_id.decode()

            async def send_traced(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                    message["headers"] = [*message.get("headers", ()), (b"x-trace-id", trace_id)]
                await send(message)

            try:
                await self._app(scope, receive, send_traced)
            except Exception as error:  # the boundary: whatever it is, the client gets an answer
                failure = error if isinstance(error, CausewayError) else Internal()
                if failure is not error:
                    _log.exception("request failed", method=method, path=path)
                if status == 0:
                    await refuse(send_traced, failure, self._error_body(scope, failure))
            finally:
                scope.setdefault("state", {})["status"] = status
                _describe(span, scope, status)


def _describe(span: Span, scope: Scope, status: int) -> None:
    route = scope.get("http.route") or getattr(scope.get("route"), "path", None)
    if route is not None:
        # The route, not the path: names of spans must be few.
        span.update_name(f"{scope['method']} {route}")
        span.set_attribute("http.route", route)
    if (frontend := scope["state"].get("frontend")) is not None:
        span.set_attribute("causeway.frontend", frontend.name)
    if status:
        span.set_attribute("http.response.status_code", status)
    if status >= _SERVER_FAULT:
        span.set_status(StatusCode.ERROR)


class BodyLimit:
    """Refuses bodies that are too large, by their length if it is given, else as soon as they pass the limit, and
    bodies that stop coming.

    Args:
        app: What is below.
        limit: Most bytes of a body.
        exceptions: Other limits, by patterns of whole paths.
        pause: Most seconds between two pieces of a body.
    """

    def __init__(
        self, app: ASGIApp, limit: int, exceptions: Sequence[tuple[re.Pattern[str], int]], pause: float
    ) -> None:
        self._app = app
        self._limit = limit
        self._exceptions = exceptions
        self._pause = pause

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = next((limit for path, limit in self._exceptions if path.fullmatch(scope["path"])), self._limit)
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit():
            raise InvalidRequest("Content-Length must be a number of bytes.", field="content-length")
        if len(length) > _MOST_DIGITS or int(length) > limit:
            raise _too_large(limit)
        received = 0
        complete = False

        async def receive_limited() -> Message:
            nonlocal received, complete
            if complete:
                # What is waited for now is the client's leaving.
                return await receive()
            try:
                async with asyncio.timeout(self._pause):
                    message = await receive()
            except TimeoutError:
                raise DeadlineExceeded("The rest of the body did not come in time.", field="body") from None
            received += len(message.get("body", b""))
            if received > limit:
                raise _too_large(limit)
            complete = not message.get("more_body", False)
            if complete:
                scope["state"]["request_bytes"] = received
                if limit != self._limit:
                    scope["state"]["ingested_bytes"] = received
            return message

        await self._app(scope, receive_limited, send)


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body is larger than {limit} bytes.", field="body")
