"""Calls to other services, each with a span, a trace context, a deadline, and errors of `servicekit.errors`.

If a call has not reached a server, this module retries it for about a second (`unsent`). The channel has its own
retries (`channel.open_channel`).
"""

import asyncio
import contextlib
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
)
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message
from grpc.aio import EOF, AioRpcError
from opentelemetry.context import Context

from servicekit import telemetry
from servicekit.deadline import Deadline
from servicekit.rpc_span import CallSpan, current_span, name_of
from servicekit.unsent import UnsentRetry, is_unsent

R = TypeVar("R")


async def unary(
    method: Callable[..., Any],
    request: Message,
    deadline: Deadline,
    *,
    expected: Collection[grpc.StatusCode] = (),
) -> Any:
    """Return the response of a unary method.

    Args:
        method: The method of the stub.
        request: The request message.
        deadline: The deadline of the call.
        expected: Error codes that are normal results, for example NOT_FOUND for a query. They do not mark the span
            as failed, so that samplers that keep all errors do not keep these spans.

    Raises:
        CausewayError: The error that the service raised, or an error of the class for gRPC's status code.
    """
    with current_span(name_of(request.DESCRIPTOR), method, expected) as span:
        retry = UnsentRetry(deadline)
        while True:
            try:
                return await method(request, timeout=deadline.timeout(), metadata=_metadata())
            except AioRpcError as error:
                if not await retry.after(error):
                    raise span.failed(error) from error


async def client_stream(
    method: Callable[..., Any],
    requests: AsyncIterator[Message] | Iterable[Message],
    name: str,
    deadline: Deadline,
) -> Any:
    """Return the response of a client-streaming method, called ``name`` in traces.

    An exception of ``requests`` cancels the call and is raised here. If gRPC itself read the iterator, it would log
    the exception and raise only a cancellation. To the service, a cancelled stream can look complete (2 % of the
    cases with grpcio 1.85), so the last message must contain an end marker. An async generator is always closed.

    Raises:
        CausewayError: See `unary`.
    """
    with current_span(name, method) as span:
        try:
            call = await _begin_call(method, deadline, None)
        except AioRpcError as error:
            raise span.failed(error) from error
        final = _FinalStatus(call)
        try:
            await _write_all(call, requests)
            with contextlib.suppress(grpc.aio.BaseError):
                await call.done_writing()
            return await call
        except AioRpcError as error:
            raise span.failed(await final.resolve(error) or error) from error
        finally:
            call.cancel()
            if isinstance(requests, AsyncGenerator):
                await requests.aclose()


async def server_stream(
    method: Callable[..., Any], request: Message, deadline: Deadline
) -> AsyncGenerator[Any, None]:
    """Yield the messages of a server-streaming method; an early exit from the loop cancels the call.

    Use it with ``contextlib.aclosing``. Otherwise an early exit cancels the call only at the next garbage
    collection.

    Raises:
        CausewayError: See `unary`. Each step can raise it.
    """
    timeout = deadline.timeout()
    # Without `with`, because a generator may be closed in another context than the one that started it.
    span = CallSpan(name_of(request.DESCRIPTOR), method)
    retry = UnsentRetry(deadline)
    call = method(request, timeout=timeout, metadata=_metadata(span.context))
    try:
        while True:
            try:
                while (message := await call.read()) is not EOF:
                    yield message
                span.code = grpc.StatusCode.OK
                return
            except AioRpcError as error:
                if not await retry.after(error):
                    raise span.failed(error) from error
                call = method(request, timeout=deadline.timeout(), metadata=_metadata(span.context))
    finally:
        call.cancel()
        span.end()


@contextlib.asynccontextmanager
async def bidi(method: Callable[..., Any], name: str, deadline: Deadline) -> AsyncIterator["Exchange"]:
    """Yield a call of a bidirectional method, called ``name`` in traces; cancel it at the end.

    Raises:
        CausewayError: See `unary`.
    """
    deadline.remaining()  # raises before the span starts if no time remains
    span = CallSpan(name, method)
    call: Any = None
    try:
        try:
            call = await _begin_call(method, deadline, span.context)
        except AioRpcError as error:
            raise span.failed(error) from error
        yield Exchange(call, span)
    finally:
        if call is not None:
            call.cancel()
        span.end()


class Exchange:
    """A bidirectional call: one task may write while another one reads. All its errors are `CausewayError`s."""

    def __init__(self, call: Any, span: CallSpan) -> None:
        self._call = call
        self._span = span
        self._final = _FinalStatus(call)
        # `call.read` would skip unread messages after a failed write.
        self._messages = aiter(call)

    async def read(self) -> Any:
        """Return the next message, or `grpc.aio.EOF` after the last one.

        Raises:
            CausewayError: The service ended the call with an error.
        """
        try:
            return await anext(self._messages)
        except StopAsyncIteration:
            self._span.code = grpc.StatusCode.OK
            return EOF
        except AioRpcError as error:
            if (cause := await self._final.resolve(error)) is None:
                self._span.code = grpc.StatusCode.OK
                return EOF
            raise self._span.failed(cause) from error

    async def write(self, message: Message) -> None:
        """Send a message; wait while the service does not read. If the call has ended, drop the message.

        Raises:
            CausewayError: The service has ended the call with an error, and there are no unread messages.
                If there are some, only `read` raises the error, after the last message.
        """
        try:
            await self._call.write(message)
        except (AioRpcError, asyncio.InvalidStateError) as error:
            if self._final.error is not None:
                raise self._span.failed(self._final.error) from error
            await asyncio.sleep(0)  # gRPC does not wait here; a loop of writes must let the reader run

    async def done_writing(self) -> None:
        """Signal that no more messages follow."""
        with contextlib.suppress(grpc.aio.BaseError):  # the call has just ended
            await self._call.done_writing()

    def done(self) -> bool:
        """Return whether the call has ended."""
        return bool(self._call.done())


class _FinalStatus:
    """Determines the status with which the service ended a call.

    If a write is in progress at that moment, the write fails, and gRPC replaces the service's status with "Internal
    error from Core" (https://github.com/grpc/grpc/issues/36066). If the real status arrives before the replacement,
    this class has recorded it. If it arrives after the replacement, gRPC corrects the status after the last read.

    Attributes:
        error: The service's error; None if the call runs or succeeded.
    """

    _CORE = "Internal error from Core"
    _WAIT_SECONDS = 1.0  # the status usually arrives within a millisecond

    def __init__(self, call: Any) -> None:
        self.error: AioRpcError | None = None
        self._call = call
        self._known = False
        call.add_done_callback(self._record)

    async def resolve(self, error: AioRpcError) -> AioRpcError | None:
        """Return the error behind a failed read; None if the service ended the call successfully.

        If the service's status does not arrive in time, the result is ``error``.
        """
        end = time.monotonic() + self._WAIT_SECONDS
        while not self._known and time.monotonic() < end:
            await asyncio.sleep(0.001)
            self._record(self._call)
        return self.error if self._known else error

    def _record(self, call: Any) -> None:
        code, details = _result(call.code()), _result(call.details())
        if self._known or details == self._CORE:
            return
        self._known = True
        if code is not grpc.StatusCode.OK:
            initial, trailing = _result(call.initial_metadata()), _result(call.trailing_metadata())
            self.error = AioRpcError(code, initial, trailing, details)


def _result(coroutine: Coroutine[Any, Any, R]) -> R:
    # gRPC returns a call's status only through coroutines. They do not wait after the end of the call.
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: R = end.value
        return value
    coroutine.close()
    raise AssertionError("the call has not ended")


async def _begin_call(method: Callable[..., Any], deadline: Deadline, context: Context | None) -> Any:
    """Begin a call whose requests cannot be sent twice; return it when a connection has accepted it.

    Raises:
        AioRpcError: There is no connection.
    """
    retry = UnsentRetry(deadline)
    while True:
        call = method(timeout=deadline.timeout(), metadata=_metadata(context))
        try:
            await call.wait_for_connection()
        except AioRpcError as error:
            if not is_unsent(error):
                return call  # the call began and has already ended; a read raises its error
            if not await retry.after(error):
                raise
        except asyncio.CancelledError:
            call.cancel()
            raise
        else:
            return call


async def _write_all(call: Any, requests: AsyncIterable[Message] | Iterable[Message]) -> None:
    # A service may respond before it has read all requests. Then the remaining requests are not sent.
    if isinstance(requests, AsyncIterable):
        async for request in requests:
            if not await _write(call, request):
                return
    else:
        for request in requests:
            if not await _write(call, request):
                return


async def _write(call: Any, message: Message) -> bool:
    try:
        await call.write(message)
    except (AioRpcError, asyncio.InvalidStateError):
        return False
    return True


def _metadata(context: Context | None = None) -> tuple[tuple[str, str], ...]:
    carrier: dict[str, str] = {}
    telemetry.inject(carrier, context)
    return tuple(carrier.items())
