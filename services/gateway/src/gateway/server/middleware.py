"""ASGI middleware around every request: tracing, the last error boundary, and limits of bodies.

Rules for all routes are ASGI middleware, because FastAPI's dependencies do not apply to raw ASGI routes.
`main.build` composes the layers. A layer refuses a request by raising a `CausewayError`. `Tracing` renders the
error in the request's dialect.
"""

import asyncio
import time
from contextlib import AbstractContextManager

import structlog
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, format_trace_id, use_span
from servicekit import telemetry
from servicekit.errors import (
    CausewayError,
    DeadlineExceeded,
    Internal,
    InvalidRequest,
    PayloadTooLarge,
    Unavailable,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.server.request_state import state_of
from gateway.server.responses import ErrorBody, refuse

_log = structlog.get_logger(__name__)
_tracer = telemetry.tracer(__name__)
_SERVER_FAULT = 500
_NOT_SUPPORTED = 501  # the client requests a feature that does not exist, so this is no fault
_TRACE_HEADERS = (b"traceparent", b"tracestate")
_ID_HEADERS = (b"x-trace-id", b"x-request-id")
_MAX_DIGITS = 18

HEALTH = ("/health", "/healthz", "/readyz", "/metrics")
"""Paths that are always admitted, and are neither logged nor recorded."""


class Tracing:
    """Opens a span for each request, as a child of the client's ``traceparent``, and renders uncaught errors.

    Every response has the trace id in ``x-trace-id``, and in ``x-request-id``, because OpenAI's clients show the
    latter with each error. The response to an uncaught exception is a 500 without internal details. A request that
    outlasts the grace period of a stopping server gets a 503, if its response has not begun.

    Args:
        app: The inner application.
        error_body: Renders the errors that no inner layer has rendered.
        draining: Set when the server begins to stop. The server cancels requests only after that.
    """

    def __init__(self, app: ASGIApp, error_body: ErrorBody, draining: asyncio.Event) -> None:
        self._app = app
        self._error_body = error_body
        self._draining = draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        carrier = {
            name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _TRACE_HEADERS
        }
        path, method = scope["path"], scope["method"]
        status = 0
        with _span(path, method, scope, telemetry.extract(carrier)) as span:
            trace_id = format_trace_id(span.get_span_context().trace_id).encode()
            state_of(scope).trace_id = trace_id.decode()

            async def send_traced(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                    message["headers"] = [*message.get("headers", ()), *((name, trace_id) for name in _ID_HEADERS)]
                await send(message)

            try:
                await self._app(scope, receive, send_traced)
            except Exception as error:  # the boundary: the client gets a response to any exception
                failure = error if isinstance(error, CausewayError) else Internal()
                if failure is not error:
                    _log.exception("request failed", method=method, path=path)
                if status == 0:
                    await refuse(send_traced, failure, self._error_body(scope, failure))
            except asyncio.CancelledError:
                if not self._draining.is_set() or status:
                    raise
                _log.warning("request outlasted the shutdown", method=method, path=path)
                stopping = Unavailable("The server is stopping. Try again.", retry_after=1)
                await refuse(send_traced, stopping, self._error_body(scope, stopping))
            finally:
                state_of(scope).status = status
                _describe(span, scope, status)


def _span(path: str, method: str, scope: Scope, context: Context) -> AbstractContextManager[Span]:
    if path in HEALTH:  # too frequent to record
        return use_span(telemetry.unrecorded(context))
    attributes = {
        "http.request.method": method,
        "url.path": path,
        "url.scheme": scope["scheme"],
        "network.protocol.version": scope["http_version"],
    }
    return _tracer.start_as_current_span(method, context=context, kind=SpanKind.SERVER, attributes=attributes)


def _describe(span: Span, scope: Scope, status: int) -> None:
    route = scope.get("http.route") or getattr(scope.get("route"), "path", None)
    if route is not None:
        # Use the route instead of the path, so that there are few names of spans.
        span.update_name(f"{scope['method']} {route}")
        span.set_attribute("http.route", route)
    span.set_attribute("causeway.frontend", state_of(scope).frontend.name)
    if status:
        span.set_attribute("http.response.status_code", status)
    if status >= _SERVER_FAULT and status != _NOT_SUPPORTED:
        span.set_status(StatusCode.ERROR)
        span.set_attribute("error.type", str(status))


class BodyLimit:
    """Refuses bodies that are too large or too slow.

    Args:
        app: The inner application.
        limit: The maximum number of bytes of a body.
        upload_limit: The maximum number of bytes of an upload's body.
        pause: The maximum number of seconds between two pieces of a body.
        rate: The minimum average rate of a body in bytes per second. It applies after the first ``pause`` seconds.
            Apache's mod_reqtimeout has the same default.
    """

    def __init__(
        self,
        app: ASGIApp,
        limit: int,
        upload_limit: int,
        pause: float,
        rate: float = 500.0,
    ) -> None:
        self._app = app
        self._limit = limit
        self._upload_limit = upload_limit
        self._pause = pause
        self._rate = rate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            InvalidRequest: The Content-Length is not a number.
            PayloadTooLarge: The body is too large.
            DeadlineExceeded: The body arrives too slowly.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        route = state_of(scope).route
        upload = route is not None and route.upload
        limit = self._upload_limit if upload else self._limit
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit():
            raise InvalidRequest("Content-Length must be a number of bytes.", field="content-length")
        if len(length) > _MAX_DIGITS or int(length) > limit:
            raise _too_large(limit)
        received = 0
        complete = False
        begun = time.monotonic()

        async def receive_limited() -> Message:
            nonlocal received, complete
            if complete:
                # After the body, only `http.disconnect` can follow.
                return await receive()
            try:
                remaining = begun + self._pause + received / self._rate - time.monotonic()
                async with asyncio.timeout(min(self._pause, remaining)):
                    message = await receive()
            except TimeoutError:
                raise DeadlineExceeded("The rest of the body did not arrive in time.", field="body") from None
            received += len(message.get("body", b""))
            if received > limit:
                raise _too_large(limit)
            complete = not message.get("more_body", False)
            if complete:
                state = state_of(scope)
                state.request_bytes = received
                if upload:
                    state.ingested_bytes = received
            return message

        await self._app(scope, receive_limited, send)


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body is larger than {limit} bytes.", field="body")
