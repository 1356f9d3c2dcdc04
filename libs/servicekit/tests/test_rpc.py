import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import grpc
import pytest
from causeway.generator.v1 import generator_pb2
from causeway.guardrails.v1 import guardrails_pb2
from causeway.retriever.v1 import document_pb2, retriever_pb2
from causeway_testing.servers import eventually, span_exporter
from opentelemetry import context as otel_context
from opentelemetry.trace import SpanKind
from servicekit import rpc, telemetry
from servicekit.deadline import Deadline
from servicekit.errors import Blocked, CausewayError, DeadlineExceeded, Internal, NotFound, Unavailable
from servicekit.service_channel import server_attributes

ASK = guardrails_pb2.DetectTextRequest()
ANSWER = guardrails_pb2.DetectTextResponse()
GENERATE = generator_pb2.GenerateRequest()
PART = generator_pb2.GenerateResponse()
UPSERT = retriever_pb2.UpsertRequest()
STORED = retriever_pb2.UpsertResponse()
PIECE = guardrails_pb2.DetectRequest(piece=guardrails_pb2.DetectPiece(text="some text " * 20))
CLEARED = guardrails_pb2.DetectResponse()

TRACE = "0af7651916cd43dd8448eb211c80319c"
KINDS = ["unary", "server_stream", "client_stream", "bidi"]


class Call:
    """Calls a method of each kind; the test supplies the handler's behaviour."""

    def __init__(self, served: Any, kind: str) -> None:
        self._served = served
        self._kind = kind
        self._method: Any = None

    @property
    def server(self) -> Mapping[str, str | int]:
        """The span attributes of the server at the channel's target."""
        attributes: Mapping[str, str | int] = self._method.server
        return attributes

    async def serve(self, behaviour: Any) -> None:
        async def once(request: Any, context: Any) -> Any:
            await behaviour(context)
            return ANSWER if self._kind == "unary" else STORED

        async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
            await behaviour(context)
            yield PART if self._kind == "server_stream" else CLEARED

        handler = once if self._kind in ("unary", "client_stream") else stream
        self._method = await getattr(self._served, self._kind)(handler)

    async def run(self, deadline: Deadline) -> None:
        if self._kind == "unary":
            await rpc.unary(self._method, ASK, deadline)
        elif self._kind == "client_stream":
            await rpc.client_stream(self._method, [UPSERT], "Upsert", deadline)
        elif self._kind == "server_stream":
            async for _ in rpc.server_stream(self._method, GENERATE, deadline):
                pass
        else:
            async with rpc.bidi(self._method, "Detect", deadline) as call:
                await call.write(PIECE)
                await call.done_writing()
                while await call.read() is not grpc.aio.EOF:
                    pass


@pytest.fixture(params=KINDS)
def call(served: Any, request: pytest.FixtureRequest) -> Call:
    return Call(served, request.param)


@pytest.fixture
def trace() -> Iterator[None]:
    """Run the test inside a trace of another caller."""
    token = otel_context.attach(telemetry.extract({"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}))
    yield
    otel_context.detach(token)


class Departure:
    """Reports when a handler is cancelled."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.started = 0
        self.cancelled = False

    async def wait_for_ever(self, context: Any = None) -> None:
        self.started += 1
        self.began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


async def test_the_trace_arrives(call: Call, trace: None) -> None:
    """For each kind of method, the handler runs in the caller's trace."""
    seen: list[str] = []

    async def behaviour(context: Any) -> None:
        seen.append(telemetry.current_trace_id())
        seen.append(dict(context.invocation_metadata())["traceparent"].split("-")[1])

    await call.serve(behaviour)
    await call.run(Deadline.after(600))
    assert seen == [TRACE, TRACE]


async def test_a_span_says_which_server_was_called(call: Call) -> None:
    """For each kind of method, the span has the address and the port of the channel's server."""
    exporter = span_exporter()

    async def behaviour(context: Any) -> None:
        """Answer the call."""

    await call.serve(behaviour)
    before = len(exporter.get_finished_spans())
    await call.run(Deadline.after(600))
    [own] = [span for span in exporter.get_finished_spans()[before:] if span.kind is SpanKind.CLIENT]
    assert own.attributes is not None
    assert call.server.keys() == {"server.address", "server.port"}
    assert {name: own.attributes[name] for name in call.server} == call.server


@pytest.mark.parametrize(
    ("target", "address", "port"),
    [
        ("retriever:50051", "retriever", 50051),
        ("dns:///retriever.causeway.svc:50051", "retriever.causeway.svc", 50051),
        ("[::1]:50051", "::1", 50051),
        ("unix:/run/causeway/retriever.sock", "/run/causeway/retriever.sock", None),
        ("unix:///run/causeway/retriever.sock", "/run/causeway/retriever.sock", None),
        ("xds:///retriever", "xds:///retriever", None),
    ],
)
def test_a_target_names_a_server(target: str, address: str, port: int | None) -> None:
    """The targets of gRPC become address and port in OpenTelemetry's attributes."""
    expected = {"server.address": address} | ({} if port is None else {"server.port": port})
    assert server_attributes(target) == expected


async def test_the_deadline_arrives(call: Call) -> None:
    """The handler gets the caller's deadline, less the time on the way."""
    seen: list[float] = []

    async def behaviour(context: Any) -> None:
        seen.append(Deadline.of(context).remaining())

    await call.serve(behaviour)
    await call.run(Deadline.after(700))
    assert 600 < seen[0] <= 707  # gRPC rounds up on the way, by up to one percent


async def test_no_deadline_arrives_as_none(call: Call) -> None:
    """A call without a deadline has none at the handler."""
    seen: list[float | None] = []

    async def behaviour(context: Any) -> None:
        seen.append(Deadline.of(context).timeout())

    await call.serve(behaviour)
    await call.run(Deadline(float("inf")))
    assert seen == [None]


async def test_a_deadline_shrinks_from_hop_to_hop(served: Any) -> None:
    """The next call gets less time, by the time that the service has used."""
    seen: list[float] = []

    async def second(request: Any, context: Any) -> Any:
        seen.append(Deadline.of(context).remaining())
        return ANSWER

    async def first(request: Any, context: Any) -> Any:
        deadline = Deadline.of(context)
        seen.append(deadline.remaining())
        await asyncio.sleep(0.1)
        return await rpc.unary(further, request, deadline)

    further = await served.unary(second)
    # gRPC sends a time-out of 100 seconds and more in whole seconds, one of less than 10 in hundredths.
    await rpc.unary(await served.unary(first), ASK, Deadline.after(9))
    assert seen[1] < seen[0] - 0.05


async def test_a_passed_deadline_ends_both_sides(call: Call) -> None:
    """When the time is up, the caller gets `DeadlineExceeded`, and the handler is cancelled."""
    departure = Departure()
    await call.serve(departure.wait_for_ever)
    deadline = Deadline.after(0.5)
    with pytest.raises(DeadlineExceeded):
        await asyncio.wait_for(call.run(deadline), 60)
    assert deadline.at - time.monotonic() < 0.01  # gRPC rounds
    await eventually(lambda: departure.cancelled, what="the handler's end")


async def test_a_deadline_in_the_past_prevents_the_call(call: Call) -> None:
    """Without time left, the service is not called."""
    called: list[None] = []

    async def behaviour(context: Any) -> None:
        called.append(None)

    await call.serve(behaviour)
    with pytest.raises(DeadlineExceeded):
        await call.run(Deadline.after(-1))
    await call.run(Deadline.after(600))
    assert len(called) == 1


async def test_errors_come_out_of_every_kind(call: Call) -> None:
    """For each kind of method, the call raises the handler's error with its class."""

    async def behaviour(context: Any) -> None:
        raise NotFound("no such index", resource="books")

    await call.serve(behaviour)
    with pytest.raises(NotFound, match="no such index") as caught:
        await call.run(Deadline.after(600))
    assert caught.value.resource == "books"


async def test_a_caller_that_is_cancelled_cancels_the_handler(call: Call) -> None:
    """The handler of a cancelled call ends long before its deadline, and the call is not repeated."""
    departure = Departure()
    await call.serve(departure.wait_for_ever)
    running = asyncio.create_task(call.run(Deadline.after(600)))
    await departure.began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await eventually(lambda: departure.cancelled, what="the handler's end")
    assert departure.started == 1


async def test_closing_the_iterator_cancels_the_handler(served: Any) -> None:
    """When the reader closes a stream, the handler ends long before the deadline."""
    departure = Departure()

    async def handler(request: Any, context: Any) -> AsyncIterator[Any]:
        yield PART
        await departure.wait_for_ever()

    method = await served.server_stream(handler)
    async with contextlib.aclosing(rpc.server_stream(method, GENERATE, Deadline.after(600))) as messages:
        async for _ in messages:
            await departure.began.wait()
            break
    await eventually(lambda: departure.cancelled, what="the handler's end")


async def test_leaving_an_exchange_cancels_the_handler(served: Any) -> None:
    """A bidirectional call ends with its block, even when an exception leaves the block."""
    departure = Departure()

    async def handler(requests: Any, context: Any) -> AsyncIterator[Any]:
        yield CLEARED
        await departure.wait_for_ever()

    async def leave(call: rpc.Exchange) -> None:
        await call.read()
        await departure.began.wait()
        raise ZeroDivisionError

    method = await served.bidi(handler)
    with pytest.raises(ZeroDivisionError):
        async with rpc.bidi(method, "Detect", Deadline.after(600)) as call:
            await leave(call)
    await eventually(lambda: departure.cancelled, what="the handler's end")


async def test_nothing_that_came_before_an_error_is_lost(served: Any) -> None:
    """A slow reader gets all messages that were sent, and then the error."""

    async def handler(request: Any, context: Any) -> AsyncIterator[Any]:
        for _ in range(200):
            yield PART
        raise Blocked("stop")

    method = await served.server_stream(handler)
    messages = rpc.server_stream(method, GENERATE, Deadline.after(600))
    for count in range(200):
        assert await anext(messages) == PART
        if count % 20 == 1:
            await asyncio.sleep(0.01)
    with pytest.raises(Blocked):
        await anext(messages)


class Flaky:
    """Fails a number of times, by default with UNAVAILABLE, before it answers."""

    def __init__(self, failures: int, error: CausewayError | None = None) -> None:
        self.calls = 0
        self._failures = failures
        self._error = error or Unavailable("not now")

    async def __call__(self, context: Any) -> None:
        self.calls += 1
        if self.calls <= self._failures:
            raise self._error


async def test_a_unary_call_is_tried_three_times(served: Any) -> None:
    """The caller does not notice two failures of a restarting service."""
    flaky, call = Flaky(2), Call(served, "unary")
    await call.serve(flaky)
    await call.run(Deadline.after(600))
    assert flaky.calls == 3


async def test_a_unary_call_is_tried_no_more_than_three_times(served: Any) -> None:
    """The third failure reaches the caller, so that the retries do not overload the service."""
    flaky, call = Flaky(99), Call(served, "unary")
    await call.serve(flaky)
    with pytest.raises(Unavailable):
        await call.run(Deadline.after(600))
    assert flaky.calls == 3


async def test_trying_again_ends_with_the_deadline(served: Any) -> None:
    """A deadline between two attempts ends the call."""
    flaky, call = Flaky(99), Call(served, "unary")
    await call.serve(flaky)
    with pytest.raises((Unavailable, DeadlineExceeded)):
        await call.run(Deadline.after(0.02))
    assert flaky.calls < 3


@pytest.mark.parametrize("error", [NotFound("no"), Internal(), Blocked("no")], ids=lambda e: type(e).__name__)
async def test_other_errors_are_not_tried_again(served: Any, error: CausewayError) -> None:
    """Errors that would repeat, or after which work may be done, cause one attempt only."""
    flaky, call = Flaky(1, error), Call(served, "unary")
    await call.serve(flaky)
    with pytest.raises(type(error)):
        await call.run(Deadline.after(600))
    assert flaky.calls == 1


@pytest.mark.parametrize("kind", ["server_stream", "client_stream", "bidi"])
async def test_a_stream_is_not_tried_again(served: Any, kind: str) -> None:
    """A stream that fails with UNAVAILABLE is not repeated, because a part of it may have arrived."""
    flaky, call = Flaky(1), Call(served, kind)
    await call.serve(flaky)
    with pytest.raises(Unavailable):
        await call.run(Deadline.after(600))
    assert flaky.calls == 1


async def test_no_retry_of_a_stream_after_its_first_message(served: Any) -> None:
    """A stream that fails with UNAVAILABLE after its first message is not repeated."""
    calls = 0

    async def handler(request: Any, context: Any) -> AsyncIterator[Any]:
        nonlocal calls
        calls += 1
        yield PART
        raise Unavailable("gone")

    messages = rpc.server_stream(await served.server_stream(handler), GENERATE, Deadline.after(600))
    assert await anext(messages) == PART
    with pytest.raises(Unavailable):
        await anext(messages)
    assert calls == 1


class Ending:
    """Refuses its first calls like a stopping server."""

    def __init__(self, refusals: int) -> None:
        self.calls = 0
        self._refusals = refusals

    async def __call__(self, context: Any) -> None:
        self.calls += 1
        if self.calls <= self._refusals:
            await context.abort(grpc.StatusCode.CANCELLED, "CANCELLED")


async def test_a_call_that_a_server_refuses_as_it_ends_is_made_again(call: Call) -> None:
    """A call of any kind that a stopping server refuses is repeated, because the server received nothing of it."""
    ending = Ending(2)
    await call.serve(ending)
    await call.run(Deadline.after(600))
    assert ending.calls == 3


async def test_a_call_that_every_server_refuses_ends(call: Call) -> None:
    """After three attempts the call fails. The error is no cancellation, because the caller cancelled nothing."""
    ending = Ending(99)
    await call.serve(ending)
    with pytest.raises(Unavailable):
        await call.run(Deadline.after(600))
    assert ending.calls == 3


async def test_no_retry_of_a_cancelled_stream_after_its_first_message(served: Any) -> None:
    """A stream that a stopping server ends after its first message is not repeated. A repetition would send this
    message twice.
    """
    ending = Ending(99)

    async def handler(request: Any, context: Any) -> AsyncIterator[Any]:
        yield PART
        await ending(context)

    messages = rpc.server_stream(await served.server_stream(handler), GENERATE, Deadline.after(600))
    assert await anext(messages) == PART
    with pytest.raises(Unavailable):
        await anext(messages)
    assert ending.calls == 1


async def test_an_exception_of_the_requests_is_raised(served: Any) -> None:
    """If the sender fails, it gets its own error, and the call ends for the service, too."""
    ended = asyncio.Event()

    async def handler(requests: Any, context: Any) -> Any:
        try:
            async for _ in requests:
                pass
        finally:
            ended.set()
        return STORED

    async def requests() -> AsyncIterator[Any]:
        yield retriever_pb2.UpsertRequest(begin=retriever_pb2.UpsertBegin())
        yield retriever_pb2.UpsertRequest(commit=retriever_pb2.UpsertCommit(chunk_count=1 // 0))

    method = await served.client_stream(handler)
    with pytest.raises(ZeroDivisionError):
        await rpc.client_stream(method, requests(), "Upsert", Deadline.after(600))
    await asyncio.wait_for(ended.wait(), 60)


@pytest.mark.parametrize("asynchronous", [True, False])
async def test_all_requests_arrive_in_order(served: Any, asynchronous: bool) -> None:
    """A client stream takes plain and asynchronous iterables, and each message arrives once."""
    seen: list[str] = []

    async def handler(requests: Any, context: Any) -> Any:
        seen.extend([request.chunks.chunks[0].text async for request in requests])
        return STORED

    def part(number: int) -> retriever_pb2.UpsertRequest:
        chunk = document_pb2.Chunk(text=str(number))
        return retriever_pb2.UpsertRequest(chunks=retriever_pb2.UpsertChunks(chunks=[chunk]))

    parts = [part(n) for n in range(50)]

    async def later() -> AsyncIterator[Any]:
        for part in parts:
            yield part

    method = await served.client_stream(handler)
    answer = await rpc.client_stream(method, later() if asynchronous else parts, "Upsert", Deadline.after(600))
    assert answer == STORED
    assert seen == [str(n) for n in range(50)]


async def test_an_early_answer_ends_the_sending(served: Any) -> None:
    """If a service answers after the first message, the call succeeds and no further message is produced."""
    closed = 0

    async def handler(requests: Any, context: Any) -> Any:
        await anext(aiter(requests))
        return STORED

    async def endless() -> AsyncIterator[Any]:
        nonlocal closed
        try:
            while True:
                yield UPSERT
        finally:
            closed += 1

    method = await served.client_stream(handler)
    for _ in range(20):
        assert await rpc.client_stream(method, endless(), "Upsert", Deadline.after(600)) == STORED
    assert closed == 20


async def test_an_early_error_keeps_its_class(served: Any) -> None:
    """A refusal that arrives while the caller writes keeps its class, every time."""
    text = "x" * 200_000  # more than gRPC buffers, so that a write is in progress
    large = retriever_pb2.UpsertRequest(chunks=retriever_pb2.UpsertChunks(chunks=[document_pb2.Chunk(text=text)]))

    async def handler(requests: Any, context: Any) -> Any:
        await anext(aiter(requests))
        raise Blocked("stop", resource="r")

    async def endless() -> AsyncIterator[Any]:
        while True:
            yield large

    method = await served.client_stream(handler)
    for _ in range(20):
        with pytest.raises(Blocked, match="stop"):
            await rpc.client_stream(method, endless(), "Upsert", Deadline.after(600))


async def test_writing_into_a_refused_exchange_keeps_the_refusal(served: Any) -> None:
    """If the service ends an exchange with an error while the caller writes, writer and reader get this error."""

    async def handler(requests: Any, context: Any) -> AsyncIterator[Any]:
        await anext(aiter(requests))
        yield CLEARED
        raise Blocked("stop")

    async def write(call: rpc.Exchange) -> None:
        while True:
            await call.write(PIECE)

    method = await served.bidi(handler)
    for _ in range(20):
        async with rpc.bidi(method, "Detect", Deadline.after(600)) as call:
            writer = asyncio.create_task(write(call))
            assert await call.read() == CLEARED
            with pytest.raises(Blocked):
                await call.read()
            with pytest.raises(Blocked):
                await writer
            assert call.done()


async def test_writing_into_an_ended_exchange_does_nothing(served: Any) -> None:
    """If the service ends an exchange without an error while the caller writes, reader and writer end without an
    error.
    """

    async def handler(requests: Any, context: Any) -> AsyncIterator[Any]:
        await anext(aiter(requests))
        yield CLEARED

    async def write(call: rpc.Exchange) -> None:
        while not call.done():
            await call.write(PIECE)
        await call.write(PIECE)
        await call.done_writing()

    method = await served.bidi(handler)
    for _ in range(20):
        async with rpc.bidi(method, "Detect", Deadline.after(600)) as call:
            writer = asyncio.create_task(write(call))
            assert await call.read() == CLEARED
            assert await call.read() is grpc.aio.EOF
            await writer


async def test_an_exchange_answers_while_it_is_written_to(served: Any) -> None:
    """Messages go in both directions at once. After `done_writing` the remaining answers arrive."""

    async def handler(requests: Any, context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            yield guardrails_pb2.DetectResponse(choice=request.piece.choice)

    method = await served.bidi(handler)
    async with rpc.bidi(method, "Detect", Deadline.after(600)) as call:
        for n in range(10):
            await call.write(guardrails_pb2.DetectRequest(piece=guardrails_pb2.DetectPiece(choice=n)))
            assert (await call.read()).choice == n
        for n in range(10, 13):
            await call.write(guardrails_pb2.DetectRequest(piece=guardrails_pb2.DetectPiece(choice=n)))
        await call.done_writing()
        assert [(await call.read()).choice for _ in range(3)] == [10, 11, 12]
        assert await call.read() is grpc.aio.EOF
