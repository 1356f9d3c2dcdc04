"""What every request passes through, as pure ASGI: tracing, identity, body limits, the last error boundary.

FastAPI's dependencies do not see raw ASGI routes, so nothing that must hold for all routes may be one of them. A
further layer (authentication, quotas) is a class like these, put into the list in `main.build_app`.
"""

import time
from collections.abc import Awaitable, Callable

import structlog
from opentelemetry.trace import SpanKind, StatusCode, format_trace_id
from servicekit import telemetry
from servicekit.errors import CausewayError, Internal, PayloadTooLarge, http_status
from servicekit.principal import Principal

from gateway.protocols.problem import problem
from gateway.routes.chat import Message, Receive, Scope, Send

App = Callable[[Scope, Receive, Send], Awaitable[None]]
_log = structlog.get_logger(__name__)
_tracer = telemetry.tracer(__name__)
_SERVER_FAULT = 500
_QUIET = ("/healthz", "/readyz", "/metrics")


class Tracing:
    """A span for each request, continued from the client's ``traceparent``; ``x-trace-id`` on every response.

    The outermost layer: what nobody below caught becomes a 500 that tells nothing of the inside, and each request
    leaves one line in the log.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        path, method = scope["path"], scope["method"]
        begin = time.perf_counter()
        status = 0
        with _tracer.start_as_current_span(
            f"{method} {path}",
            context=telemetry.extract(headers),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method, "url.path": path},
        ) as span:
            trace_id = format_trace_id(span.get_span_context().trace_id).encode()

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
                    await _answer(send_traced, failure)
            span.set_attribute("http.response.status_code", status)
            if status >= _SERVER_FAULT:
                span.set_status(StatusCode.ERROR)
            if path not in _QUIET:
                milliseconds = round((time.perf_counter() - begin) * 1000, 1)
                _log.info("request", method=method, path=path, status=status or 499, duration_ms=milliseconds)


class Identity:
    """Says who asks, in ``scope["state"]["principal"]``. Without authentication it is always the same one."""

    def __init__(self, app: App, principal: Principal) -> None:
        self._app = app
        self._principal = principal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] == "http":
            scope.setdefault("state", {})["principal"] = self._principal
        await self._app(scope, receive, send)


class BodyLimit:
    """Refuses bodies that are too large: by their length if it is given, else as soon as they pass the limit.

    Args:
        app: What is below.
        limit: Most bytes of a body.
        exceptions: Other limits by path.
    """

    def __init__(self, app: App, limit: int, exceptions: dict[str, int]) -> None:
        self._app = app
        self._limit = limit
        self._exceptions = exceptions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._exceptions.get(scope["path"], self._limit)
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length) > limit:
            await _answer(send, _too_large(limit))
            return
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                raise _too_large(limit)
            return message

        await self._app(scope, receive_limited, send)


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"The body is larger than {limit} bytes.", field="body")


async def _answer(send: Send, error: CausewayError) -> None:
    body = problem(error)
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": http_status(error), "headers": headers})
    await send({"type": "http.response.body", "body": body})
