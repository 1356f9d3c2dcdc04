"""Calling other services: each call with a span, the trace's metadata, a deadline, and errors of our own tree."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from typing import Any, TypeVar

from google.protobuf.message import Message
from grpc.aio import EOF, AioRpcError
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode

from servicekit import telemetry
from servicekit.deadline import Deadline
from servicekit.errors import Cancelled, CausewayError
from servicekit.rpc_errors import unpack

_tracer = telemetry.tracer(__name__)
R = TypeVar("R")


async def unary(method: Callable[..., Any], request: Message, deadline: Deadline) -> Any:
    """The answer of a unary method.

    Raises:
        CausewayError: What the service raised, or the class that stands for gRPC's own code.
    """
    with _span(_name(request)) as span:
        try:
            return await method(request, timeout=deadline.timeout(), metadata=_metadata())
        except AioRpcError as error:
            raise _failed(span, error) from error


async def client_stream(
    method: Callable[..., Any],
    requests: AsyncIterator[Message] | Iterable[Message],
    name: str,
    deadline: Deadline,
) -> Any:
    """The answer of a client-streaming method, called ``name`` in traces.

    Raises:
        CausewayError: As `unary`.
    """
    with _span(name) as span:
        try:
            return await method(requests, timeout=deadline.timeout(), metadata=_metadata())
        except AioRpcError as error:
            raise _failed(span, error) from error


async def server_stream(
    method: Callable[..., Any], request: Message, deadline: Deadline
) -> AsyncGenerator[Any, None]:
    """The messages of a server-streaming method; leaving the loop early cancels the call.

    Use with ``contextlib.aclosing``, so that leaving cancels at once and not when garbage is collected.

    Raises:
        CausewayError: As `unary`; from the first step or from a later one.
    """
    # No `with`: a generator may be closed from another context than the one it was begun in.
    span = _tracer.start_span(_name(request), kind=SpanKind.CLIENT)
    call = method(request, timeout=deadline.timeout(), metadata=_metadata(trace.set_span_in_context(span)))
    try:
        while (message := await call.read()) is not EOF:
            yield message
    except AioRpcError as error:
        raise _failed(span, error) from error
    finally:
        call.cancel()
        span.end()


@contextlib.asynccontextmanager
async def bidi(method: Callable[..., Any], name: str, deadline: Deadline) -> AsyncIterator[Any]:
    """A call of a bidirectional method, called ``name`` in traces: write to it, read from it. Cancelled at the end.

    What gRPC raises inside the block leaves it as an error of our tree.

    Raises:
        CausewayError: As `unary`.
    """
    span = _tracer.start_span(name, kind=SpanKind.CLIENT)
    call = method(timeout=deadline.timeout(), metadata=_metadata(trace.set_span_in_context(span)))
    try:
        yield call
    except AioRpcError as error:
        raise _failed(span, error) from error
    finally:
        call.cancel()
        span.end()


def _failed(span: trace.Span, error: AioRpcError) -> CausewayError:
    failure = unpack(error)
    if not isinstance(failure, Cancelled):
        span.set_status(StatusCode.ERROR, error.code().name)
    return failure


@contextlib.contextmanager
def _span(name: str) -> Iterator[trace.Span]:
    with _tracer.start_as_current_span(
        name, kind=SpanKind.CLIENT, record_exception=False, set_status_on_exception=False
    ) as span:
        yield span


def _name(request: Message) -> str:
    # Every RPC Foo takes a FooRequest (held by the contracts' linter), so the request names the method.
    package, _, name = request.DESCRIPTOR.full_name.rpartition(".")
    return f"{package}/{name.removesuffix('Request')}"


def _metadata(context: Context | None = None) -> tuple[tuple[str, str], ...]:
    carrier: dict[str, str] = {}
    telemetry.inject(carrier, context)
    return tuple(carrier.items())
