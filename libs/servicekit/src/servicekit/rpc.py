"""Calling other services: each call with a span, the trace's metadata, a deadline, and errors of our own tree."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from grpc.aio import EOF, AioRpcError
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode

from servicekit import metrics, telemetry
from servicekit.deadline import Deadline
from servicekit.errors import Cancelled, CausewayError
from servicekit.rpc_errors import unpack

_tracer = telemetry.tracer(__name__)
_calls = metrics.durations(__name__, "rpc.client.call.duration", "Seconds from a call's begin to its end.")
R = TypeVar("R")


async def unary(method: Callable[..., Any], request: Message, deadline: Deadline) -> Any:
    """The answer of a unary method.

    Raises:
        CausewayError: What the service raised, or the class that stands for gRPC's own code.
    """
    with _current(_name(request)) as going:
        try:
            return await method(request, timeout=deadline.timeout(), metadata=_metadata())
        except AioRpcError as error:
            raise going.failed(error) from error


async def client_stream(
    method: Callable[..., Any],
    requests: AsyncIterator[Message] | Iterable[Message],
    name: str,
    deadline: Deadline,
) -> Any:
    """The answer of a client-streaming method, called ``name`` in traces.

    What ``requests`` raises cancels the call and is raised here; gRPC, given the iterator, would log it and leave
    us with a bare cancellation. To the service a cancelled stream can look like one that ended (2 % of the time,
    with grpcio 1.85), so that the last message has to say that it is the last. An async generator is closed at the
    end, however that comes.

    Raises:
        CausewayError: As `unary`.
    """
    with _current(name) as going:
        call = method(timeout=deadline.timeout(), metadata=_metadata())
        ending = _Ending(call)
        try:
            await _write_all(call, requests)
            with contextlib.suppress(grpc.aio.BaseError):
                await call.done_writing()
            return await call
        except AioRpcError as error:
            raise going.failed(await ending.of(error) or error) from error
        finally:
            call.cancel()
            if isinstance(requests, AsyncGenerator):
                await requests.aclose()


async def server_stream(
    method: Callable[..., Any], request: Message, deadline: Deadline
) -> AsyncGenerator[Any, None]:
    """The messages of a server-streaming method; leaving the loop early cancels the call.

    Use with ``contextlib.aclosing``, so that leaving cancels at once and not when garbage is collected.

    Raises:
        CausewayError: As `unary`; from the first step or from a later one.
    """
    timeout = deadline.timeout()
    # No `with`: a generator may be closed from another context than the one it was begun in.
    going = _Going(_name(request))
    call = method(request, timeout=timeout, metadata=_metadata(going.context))
    try:
        while (message := await call.read()) is not EOF:
            yield message
        going.code = grpc.StatusCode.OK
    except AioRpcError as error:
        raise going.failed(error) from error
    finally:
        call.cancel()
        going.end()


@contextlib.asynccontextmanager
async def bidi(method: Callable[..., Any], name: str, deadline: Deadline) -> AsyncIterator["Exchange"]:
    """A call of a bidirectional method, called ``name`` in traces. Cancelled at the end.

    Raises:
        CausewayError: As `unary`.
    """
    timeout = deadline.timeout()
    going = _Going(name)
    call = method(timeout=timeout, metadata=_metadata(going.context))
    try:
        yield Exchange(call, going)
    finally:
        call.cancel()
        going.end()


class Exchange:
    """A bidirectional call: one task may write while another reads. Errors are of our tree."""

    def __init__(self, call: Any, going: "_Going") -> None:
        self._call = call
        self._going = going
        self._ending = _Ending(call)
        # Not `call.read`, which skips what has not been read yet once a write has failed.
        self._messages = aiter(call)

    async def read(self) -> Any:
        """The next message; `grpc.aio.EOF` after the last one.

        Raises:
            CausewayError: The service ended the call with an error.
        """
        try:
            return await anext(self._messages)
        except StopAsyncIteration:
            self._going.code = grpc.StatusCode.OK
            return EOF
        except AioRpcError as error:
            if (known := await self._ending.of(error)) is None:
                self._going.code = grpc.StatusCode.OK
                return EOF
            raise self._going.failed(known) from error

    async def write(self, message: Message) -> None:
        """Sends a message; waits while the other side does not read. Nobody hears it once the call is over.

        Raises:
            CausewayError: The service has ended the call with an error. Where there still is something to read,
                that comes first, and only the reader learns of the error.
        """
        try:
            await self._call.write(message)
        except (AioRpcError, asyncio.InvalidStateError) as error:
            if self._ending.error is not None:
                raise self._going.failed(self._ending.error) from error
            await asyncio.sleep(0)  # nor does gRPC wait: a loop that only writes must leave the reader its turn

    async def done_writing(self) -> None:
        """Says that nothing more will be written."""
        with contextlib.suppress(grpc.aio.BaseError):  # the call has just ended
            await self._call.done_writing()

    def done(self) -> bool:
        """Whether the call is over."""
        return bool(self._call.done())


class _Ending:
    """How the other side ended a call.

    A write that is under way at that moment fails, and gRPC puts "Internal error from Core" in the place of the
    service's own status (https://github.com/grpc/grpc/issues/36066). Where that status came first, it was kept when
    it came; where it comes second, after the last message was read, gRPC corrects itself without a word.

    Attributes:
        error: The service's error, once it is known.
    """

    _CORE = "Internal error from Core"
    _PATIENCE = 1.0  # seconds; usually the status is a millisecond away

    def __init__(self, call: Any) -> None:
        self.error: AioRpcError | None = None
        self._call = call
        self._known = False
        call.add_done_callback(self._look)

    async def of(self, error: AioRpcError) -> AioRpcError | None:
        """What stands behind a read that failed; None where the service ended the call well."""
        end = time.monotonic() + self._PATIENCE
        while not self._known and time.monotonic() < end:
            await asyncio.sleep(0.001)
            self._look(self._call)
        return self.error if self._known else error

    def _look(self, call: Any) -> None:
        code, details = _at_once(call.code()), _at_once(call.details())
        if self._known or details == self._CORE:
            return
        self._known = True
        if code is not grpc.StatusCode.OK:
            initial, trailing = _at_once(call.initial_metadata()), _at_once(call.trailing_metadata())
            self.error = AioRpcError(code, initial, trailing, details)


def _at_once(coroutine: Coroutine[Any, Any, R]) -> R:
    # gRPC tells of a call's status through coroutines only; once it is there, they have nothing to wait for.
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: R = end.value
        return value
    coroutine.close()
    raise AssertionError("the call is not over")


async def _write_all(call: Any, requests: AsyncIterable[Message] | Iterable[Message]) -> None:
    # A service may answer before it has read everything: the answer then says why, and the rest is not made.
    if isinstance(requests, AsyncIterable):
        async for request in requests:
            if not await _written(call, request):
                return
    else:
        for request in requests:
            if not await _written(call, request):
                return


async def _written(call: Any, message: Message) -> bool:
    try:
        await call.write(message)
    except (AioRpcError, asyncio.InvalidStateError):
        return False
    return True


class _Going:
    """A call that is under way: its span, and its time once it has ended.

    Attributes:
        span: Begun with it, unless it is given.
        code: What it ended with; whoever leaves it before its end cancels it.
    """

    def __init__(self, name: str, span: trace.Span | None = None) -> None:
        self._name = name
        self._begin = time.perf_counter()
        self.span = span or _tracer.start_span(name, kind=SpanKind.CLIENT)
        self.code = grpc.StatusCode.CANCELLED

    @property
    def context(self) -> Context:
        """The span's, for the call's metadata."""
        return trace.set_span_in_context(self.span)

    def failed(self, error: AioRpcError) -> CausewayError:
        """What the caller is told."""
        failure = unpack(error)
        self.code = error.code()
        if not isinstance(failure, Cancelled):
            self.span.set_status(StatusCode.ERROR, self.code.name)
        return failure

    def end(self) -> None:
        """Ends the span, and measures the call."""
        self.span.end()
        _calls.record(
            time.perf_counter() - self._begin,
            {"rpc.method": self._name, "rpc.response.status_code": self.code.name},
        )


@contextlib.contextmanager
def _current(name: str) -> Iterator[_Going]:
    with _tracer.start_as_current_span(
        name, kind=SpanKind.CLIENT, record_exception=False, set_status_on_exception=False, end_on_exit=False
    ) as span:
        going = _Going(name, span)
        try:
            yield going
            going.code = grpc.StatusCode.OK
        finally:
            going.end()


def _name(request: Message) -> str:
    # Every RPC Foo takes a FooRequest (held by the contracts' linter), so the request names the method.
    package, _, name = request.DESCRIPTOR.full_name.rpartition(".")
    return f"{package}/{name.removesuffix('Request')}"


def _metadata(context: Context | None = None) -> tuple[tuple[str, str], ...]:
    carrier: dict[str, str] = {}
    telemetry.inject(carrier, context)
    return tuple(carrier.items())
