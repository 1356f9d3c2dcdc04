"""Calls of other services, each with a span, a trace context, a deadline, and errors of `servicekit.errors`.

A call that has not reached a server is retried for a second (`unsent`); the channel retries others (`channel`).
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
from servicekit.rpc_span import CallSpan, current, name_of
from servicekit.unsent import UnsentRetry, is_unsent

R = TypeVar("R")


async def unary(
    method: Callable[..., Any],
    request: Message,
    deadline: Deadline,
    *,
    expected: Collection[grpc.StatusCode] = (),
) -> Any:
    """Return the answer of a unary method.

    Args:
        method: The method of the stub.
        request: Its message.
        deadline: The deadline of the call.
        expected: Error codes that are valid answers, for example NOT_FOUND for a query. They do not mark the span
            as failed, so that samplers that keep all errors do not keep these.

    Raises:
        CausewayError: The error of the service, or the class for gRPC's own code.
    """
    with current(name_of(request.DESCRIPTOR), method, expected) as going:
        retry = UnsentRetry(deadline)
        while True:
            try:
                return await method(request, timeout=deadline.timeout(), metadata=_metadata())
            except AioRpcError as error:
                if not await retry.after(error):
                    raise going.failed(error) from error


async def client_stream(
    method: Callable[..., Any],
    requests: AsyncIterator[Message] | Iterable[Message],
    name: str,
    deadline: Deadline,
) -> Any:
    """Return the answer of a client-streaming method, called ``name`` in traces.

    An exception of ``requests`` cancels the call and is raised here. gRPC itself, if given the iterator, would log
    it and raise only a cancellation. A cancelled stream can look complete to the service (in 2 % of the cases, with
    grpcio 1.85), so the last message must be marked as the last one. An async generator is always closed at the
    end.

    Raises:
        CausewayError: As `unary`.
    """
    with current(name, method) as going:
        try:
            call = await _connected(method, deadline, None)
        except AioRpcError as error:
            raise going.failed(error) from error
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
    """Yield the messages of a server-streaming method; leaving the loop early cancels the call.

    Use with ``contextlib.aclosing``, so that leaving cancels at once and not at a garbage collection.

    Raises:
        CausewayError: As `unary`, at any step.
    """
    timeout = deadline.timeout()
    # Not `with`: a generator may be closed in another context than the one that started it.
    going = CallSpan(name_of(request.DESCRIPTOR), method)
    retry = UnsentRetry(deadline)
    call = method(request, timeout=timeout, metadata=_metadata(going.context))
    try:
        while True:
            try:
                while (message := await call.read()) is not EOF:
                    yield message
                going.code = grpc.StatusCode.OK
                return
            except AioRpcError as error:
                if not await retry.after(error):
                    raise going.failed(error) from error
                call = method(request, timeout=deadline.timeout(), metadata=_metadata(going.context))
    finally:
        call.cancel()
        going.end()


@contextlib.asynccontextmanager
async def bidi(method: Callable[..., Any], name: str, deadline: Deadline) -> AsyncIterator["Exchange"]:
    """Yield a call of a bidirectional method, called ``name`` in traces; cancel it at the end.

    Raises:
        CausewayError: As `unary`.
    """
    deadline.remaining()
    going = CallSpan(name, method)
    call: Any = None
    try:
        try:
            call = await _connected(method, deadline, going.context)
        except AioRpcError as error:
            raise going.failed(error) from error
        yield Exchange(call, going)
    finally:
        if call is not None:
            call.cancel()
        going.end()


class Exchange:
    """A bidirectional call: one task may write while another one reads. All its errors are `CausewayError`s."""

    def __init__(self, call: Any, going: "CallSpan") -> None:
        self._call = call
        self._going = going
        self._ending = _Ending(call)
        # Not `call.read`, which skips unread messages after a failed write.
        self._messages = aiter(call)

    async def read(self) -> Any:
        """Return the next message, or `grpc.aio.EOF` after the last one.

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
        """Send a message; wait while the other side does not read. After the end of the call, do nothing.

        Raises:
            CausewayError: The service has ended the call with an error. While there are unread messages, only the
                reader gets the error, after them.
        """
        try:
            await self._call.write(message)
        except (AioRpcError, asyncio.InvalidStateError) as error:
            if self._ending.error is not None:
                raise self._going.failed(self._ending.error) from error
            await asyncio.sleep(0)  # gRPC does not wait here; a loop that only writes must let the reader run

    async def done_writing(self) -> None:
        """Signal that no more messages follow."""
        with contextlib.suppress(grpc.aio.BaseError):  # the call has just ended
            await self._call.done_writing()

    def done(self) -> bool:
        """Return whether the call has ended."""
        return bool(self._call.done())


class _Ending:
    """Finds out how the other side ended a call.

    A write in progress at that moment fails, and gRPC replaces the service's status with "Internal error from Core"
    (https://github.com/grpc/grpc/issues/36066). If the real status arrives first, this class has recorded it. If it
    arrives second, after the last message was read, gRPC corrects its status silently.

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
        """Return the error behind a failed read, or None if the service ended the call successfully."""
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
    # gRPC gives a call's status only through coroutines, which do not wait once the status is known.
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: R = end.value
        return value
    coroutine.close()
    raise AssertionError("the call has not ended")


async def _connected(method: Callable[..., Any], deadline: Deadline, context: Context | None) -> Any:
    """Begin a call whose requests cannot be sent twice, and return it once a connection has accepted it.

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
                return call  # it began and has already ended; reading from it gives the reason
            if not await retry.after(error):
                raise
        except asyncio.CancelledError:
            call.cancel()
            raise
        else:
            return call


async def _write_all(call: Any, requests: AsyncIterable[Message] | Iterable[Message]) -> None:
    # A service may answer before it has read everything. The answer shows the reason, and the rest is not sent.
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


def _metadata(context: Context | None = None) -> tuple[tuple[str, str], ...]:
    carrier: dict[str, str] = {}
    telemetry.inject(carrier, context)
    return tuple(carrier.items())
