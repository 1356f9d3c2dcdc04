"""The interceptor of all gRPC servers: traces, errors, cancellation."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterator
from typing import Any, Self

import grpc
import structlog
from grpc.aio import AbortError
from opentelemetry.trace import Span, SpanKind, StatusCode

from servicekit import metrics, telemetry
from servicekit.errors import (
    Cancelled,
    CausewayError,
    DeadlineExceeded,
    Internal,
    NotSupported,
    PermissionDenied,
    Unavailable,
    http_status,
)
from servicekit.rpc_errors import pack

_tracer = telemetry.tracer(__name__)
_calls = metrics.durations(__name__, "rpc.server.call.duration", "Seconds from the start of a call to its end.")
_log = structlog.get_logger(__name__)
_FIRST_SERVER_ERROR = 500
_CAUSE_LENGTH = 500
# The codes that OpenTelemetry's conventions count as errors of a server. UNIMPLEMENTED is left out, because an
# unknown method is an error of the caller.
# https://opentelemetry.io/docs/specs/semconv/rpc/grpc/
_FAULTS = frozenset(
    (
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    )
)


class ServiceInterceptor(grpc.aio.ServerInterceptor):
    """Runs each handler in a span that continues the caller's trace, and turns its errors into a status.

    A `CausewayError` becomes the status of its row in the table of `errors`. A method that is not implemented
    becomes UNIMPLEMENTED, and a call that the caller has cancelled becomes CANCELLED. Any other exception is a
    defect: the caller gets INTERNAL, and the log gets the stack trace.

    Args:
        callers: The services that may call, identified by the first label of a name in their certificates. None:
            all.
    """

    def __init__(self, callers: Collection[str] | None = None) -> None:
        self._callers = None if callers is None else frozenset(callers)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable["grpc.RpcMethodHandler[Any, Any] | None"]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return the wrapped handler; handlers of gRPC's own services are unchanged."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or method.startswith("/grpc."):
            return handler
        if handler.response_streaming:
            behaviour = _wrap_streaming(method, self._callers, handler.stream_stream or handler.unary_stream)
            make = (
                grpc.stream_stream_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_stream_rpc_method_handler
            )
        else:
            behaviour = _wrap_single(method, self._callers, handler.stream_unary or handler.unary_unary)
            make = (
                grpc.stream_unary_rpc_method_handler
                if handler.request_streaming
                else grpc.unary_unary_rpc_method_handler
            )
        return make(behaviour, handler.request_deserializer, handler.response_serializer)


def _wrap_single(method: str, callers: frozenset[str] | None, behaviour: Any) -> Any:
    async def run(request: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> Any:
        async with _call_scope(method, callers, context):
            return await behaviour(request, context)

    return run


def _wrap_streaming(method: str, callers: frozenset[str] | None, behaviour: Any) -> Any:
    # The wrapper writes and does not yield, so that the handler's generator runs and ends in one task and context.
    async def run(request: Any, context: "grpc.aio.ServicerContext[Any, Any]") -> None:
        async with _call_scope(method, callers, context):
            messages: AsyncGenerator[Any, None] = behaviour(request, context)
            async with contextlib.aclosing(messages):
                async for message in messages:
                    await context.write(message)

    return run


@contextlib.asynccontextmanager
async def _call_scope(
    method: str, callers: frozenset[str] | None, context: "grpc.aio.ServicerContext[Any, Any]"
) -> AsyncIterator[None]:
    carrier = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
    with (
        _Measured(method) as measured,
        _tracer.start_as_current_span(
            method.removeprefix("/"),
            context=telemetry.extract(carrier),
            kind=SpanKind.SERVER,
            attributes={"rpc.system.name": "grpc", "rpc.method": method.removeprefix("/")},
            record_exception=False,
            set_status_on_exception=False,
        ) as span,
        measured.record_on(span),
    ):
        try:
            if callers is not None:
                _check_caller(callers, context)
            yield
        except AbortError:
            raise
        except asyncio.CancelledError as error:
            if _cancelled_from_outside():
                raise
            # The handler awaited a cancelled task of its own. For this exception, gRPC would send no status.
            failure: CausewayError = Internal()
            failure.__cause__ = error
        except CausewayError as error:
            failure = error
        except grpc.aio.BaseError as error:
            # A blocked write raises this error, and no cancellation, if the caller cancels the call.
            failure = Cancelled("The caller cancelled the call.")
            failure.__cause__ = error
        except NotImplementedError as error:  # raised by the generated base class for a missing method
            failure = NotSupported("The service does not offer this call.")
            failure.__cause__ = error
        except Exception as error:  # the outermost handler: the caller always gets a status
            failure = Internal()
            failure.__cause__ = error
        else:
            _log.debug("call answered", **measured.fields)
            return
        code, message, trailers = pack(failure)
        measured.code = code
        if code in _FAULTS:
            span.set_status(StatusCode.ERROR, type(failure).__name__)
            span.set_attribute("error.type", code.name)
        if isinstance(failure, Unavailable | DeadlineExceeded):
            # A dependency is unavailable. A stack trace for each call would fill the log during the outage.
            _log.warning("call failed", error=message, cause=_cause(failure), **measured.fields)
        elif http_status(failure) >= _FIRST_SERVER_ERROR:
            _log.error("call failed", error=message, exc_info=failure, **measured.fields)
        else:
            _log.info("call refused", error=message, **measured.fields)
        await context.abort(code, message, trailers)


def _cause(failure: BaseException) -> str | None:
    """Return the root cause of an error, in one line; None if the error has no cause."""
    first = failure
    while first.__cause__ is not None:
        first = first.__cause__
    if first is failure:
        return None
    details = first.details() if isinstance(first, grpc.aio.AioRpcError) else str(first)
    return f"{type(first).__name__}: {' '.join((details or '').split())}"[:_CAUSE_LENGTH]


class _Measured:
    """Measures the duration of a call, with its method and its final code."""

    def __init__(self, method: str) -> None:
        self._method = method.removeprefix("/")
        self._start = time.perf_counter()
        self.code = grpc.StatusCode.OK

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the call's log line."""
        spent = time.perf_counter() - self._start
        return {"method": f"/{self._method}", "code": self.code.name, "duration_ms": round(spent * 1000, 1)}

    def __enter__(self) -> Self:
        return self

    @contextlib.contextmanager
    def record_on(self, span: Span) -> Iterator[None]:
        """Record the final code of the call on its span."""
        try:
            yield
        except asyncio.CancelledError:
            self.code = grpc.StatusCode.CANCELLED
            raise
        finally:
            span.set_attribute("rpc.response.status_code", self.code.name)

    def __exit__(self, *exc: object) -> None:
        _calls.record(
            time.perf_counter() - self._start,
            {"rpc.method": self._method, "rpc.response.status_code": self.code.name},
        )


def _check_caller(callers: frozenset[str], context: "grpc.aio.ServicerContext[Any, Any]") -> None:
    # gRPC has checked the certificate's issuer. This function checks its names.
    identity = context.auth_context()
    names = [
        name.decode(errors="replace")
        for key in ("x509_subject_alternative_name", "x509_common_name")
        for name in identity.get(key, ())
    ]
    if callers.isdisjoint(name.partition(".")[0] for name in names):
        raise PermissionDenied(
            f"The caller's certificate is for {', '.join(names) or 'no service'}, which may not call this service."
        )


def _cancelled_from_outside() -> bool:
    # gRPC runs a call as one task. It cancels the task if the caller cancels or the server's grace period ends.
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
