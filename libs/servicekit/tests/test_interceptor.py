import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from causeway.generator.v1 import generator_pb2
from causeway.guardrails.v1 import guardrails_pb2, guardrails_pb2_grpc
from causeway.retriever.v1 import retriever_pb2
from causeway_testing.servers import grpc_service, traced
from grpc_health.v1 import health_pb2
from servicekit import rpc
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, Internal, NotFound, NotSupported, Unavailable, UpstreamRejected
from servicekit.server import GrpcServer

GUARDRAILS = guardrails_pb2.DESCRIPTOR.services_by_name["GuardrailsService"]
ASK = guardrails_pb2.DetectTextRequest()
GENERATE = generator_pb2.GenerateRequest()
LONG = generator_pb2.GenerateResponse(
    events=[generator_pb2.GenerateEvent(kind=generator_pb2.EVENT_KIND_TEXT, text="x" * 4096)]
)


async def _fail(served: Any, error: BaseException) -> CausewayError:
    async def handler(request: Any, context: Any) -> Any:
        raise error

    method = await served.unary(handler)
    with pytest.raises(CausewayError) as caught:
        await rpc.unary(method, ASK, Deadline.after(600))
    return caught.value


async def test_a_defect_is_internal_and_logged_with_its_stack(served: Any, log: Any) -> None:
    """The caller gets a general error. The log gets the error with its stack."""
    got = await _fail(served, KeyError("secret"))
    assert (type(got), got.message) == (Internal, Internal.MESSAGE)
    (entry,) = log
    assert entry["log_level"] == "error"
    assert entry["method"] == "/causeway.guardrails.v1.GuardrailsService/DetectText"
    cause = entry["exc_info"].__cause__
    assert isinstance(cause, KeyError)
    assert cause.__traceback__ is not None


async def test_errors_of_callers_are_not_server_errors(served: Any, log: Any) -> None:
    """A refusal is an information line without a stack."""
    await _fail(served, NotFound("no such index", resource="books"))
    (entry,) = log
    assert (entry["log_level"], entry["error"]) == ("info", "no such index")
    assert "exc_info" not in entry


@pytest.mark.parametrize(("status", "level"), [(400, "info"), (429, "info"), (500, "error"), (503, "error")])
async def test_a_model_servers_fault_is_logged_by_its_status(
    served: Any, log: Any, status: int, level: str
) -> None:
    """The status of a model server's refusal determines whether the refusal is logged as a failure."""
    await _fail(served, UpstreamRejected("refused", status=status, body=""))
    assert [entry["log_level"] for entry in log] == [level]


async def test_the_cause_of_a_failure_is_logged(served: Any, log: Any) -> None:
    """The cause of an unavailable dependency is one line of the log, without a stack, and not in the answer."""
    error = Unavailable("The store cannot be reached.")
    error.__cause__ = RuntimeError("no connection")
    error.__cause__.__cause__ = OSError("10.1.2.3\nrefused")
    got = await _fail(served, error)
    assert got.message == "The store cannot be reached."
    assert (log[0]["log_level"], log[0]["cause"]) == ("warning", "OSError: 10.1.2.3 refused")
    assert "exc_info" not in log[0]


async def test_long_messages_do_not_fill_the_log(served: Any, log: Any) -> None:
    """A message that repeats a huge input is truncated in the log."""
    await _fail(served, NotFound("x" * 1_000_000))
    assert 0 < len(log[0]["error"]) < 10_000


async def test_the_cancellation_of_another_task_is_a_defect(served: Any, log: Any) -> None:
    """A handler that fails with another task's cancellation answers at once. Without that, gRPC would not end the
    call.
    """

    async def handler(request: Any, context: Any) -> Any:
        task = asyncio.create_task(asyncio.sleep(10))
        await asyncio.sleep(0)
        task.cancel()
        await task

    method = await served.unary(handler)
    with pytest.raises(Internal):
        await rpc.unary(method, ASK, Deadline.after(600))
    assert log[0]["log_level"] == "error"


@pytest.mark.parametrize("kind", ["unary", "server_stream"])
async def test_a_call_that_the_caller_cancels_is_no_error(
    served: Any, log: Any, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """A cancelled call ends the handler, runs its clean-up, and logs nothing."""
    began, ended = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async def once(request: Any, context: Any) -> Any:
        await wait()

    async def stream(request: Any, context: Any) -> AsyncIterator[Any]:
        await wait()
        yield

    if kind == "unary":
        call = rpc.unary(await served.unary(once), ASK, Deadline.after(600))
    else:
        call = anext(rpc.server_stream(await served.server_stream(stream), GENERATE, Deadline.after(600)))
    running = asyncio.ensure_future(call)
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await asyncio.wait_for(ended.wait(), 60)
    await asyncio.sleep(0.02)  # log lines appear only after the handler's end
    assert log == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_blocked_write_ends_when_the_caller_cancels(
    served: Any, log: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A handler whose write is blocked ends without an error when the client leaves."""
    written = 0
    ended = asyncio.Event()

    async def handler(request: Any, context: Any) -> AsyncIterator[Any]:
        nonlocal written
        try:
            while True:
                yield LONG
                written += 1
        finally:
            ended.set()

    method = await served.server_stream(handler)
    for _ in range(5):
        ended.clear()
        async with contextlib.aclosing(rpc.server_stream(method, GENERATE, Deadline.after(600))) as messages:
            await anext(messages)
            before = -1
            while before != written:
                before = written
                await asyncio.sleep(0.05)
        await asyncio.wait_for(ended.wait(), 60)
    await asyncio.sleep(0.02)
    assert written < 5 * 50
    assert [entry for entry in log if entry["log_level"] != "info"] == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_streams_handler_runs_in_one_task(served: Any) -> None:
    """One task runs the handler's generator from its start to its end, so that its contexts can be closed."""
    tasks: list[Any] = []

    async def handler(request: Any, context: Any) -> AsyncIterator[Any]:
        tasks.append(asyncio.current_task())
        try:
            async with asyncio.timeout(60):
                yield LONG
                tasks.append(asyncio.current_task())
                yield LONG
        finally:
            tasks.append(asyncio.current_task())

    messages = rpc.server_stream(await served.server_stream(handler), GENERATE, Deadline.after(600))
    assert [message async for message in messages] == [LONG, LONG]
    assert len(tasks) == 3
    assert len(set(tasks)) == 1


async def test_a_stream_that_fails_after_messages(served: Any, log: Any) -> None:
    """The client gets the written messages and then the error. The log gets the cause."""

    async def handler(request: Any, context: Any) -> AsyncIterator[Any]:
        yield LONG
        raise ZeroDivisionError

    messages = rpc.server_stream(await served.server_stream(handler), GENERATE, Deadline.after(600))
    assert await anext(messages) == LONG
    with pytest.raises(Internal):
        await anext(messages)
    assert isinstance(log[0]["exc_info"].__cause__, ZeroDivisionError)


async def test_streams_of_requests_reach_their_handlers(served: Any) -> None:
    """Methods that take streams are wrapped, too, and raise the platform's errors."""

    async def handler(requests: Any, context: Any) -> Any:
        async for _ in requests:
            raise NotFound("nothing here")

    method = await served.client_stream(handler)
    with pytest.raises(NotFound, match="nothing here"):
        await rpc.client_stream(method, [retriever_pb2.UpsertRequest()], "Upsert", Deadline.after(600))


async def test_grpcs_own_services_are_not_wrapped(log: Any) -> None:
    """Health checks are neither traced nor logged, and keep their own errors."""
    assert traced("grpc.health.v1.Health/Check") == []
    server = GrpcServer("127.0.0.1:0", [])
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await check(health_pb2.HealthCheckRequest(service="nobody"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    await server.stop(0)
    assert log == []
    assert traced("grpc.health.v1.Health/Check") == []


async def test_a_missing_method_is_not_supported(served: Any) -> None:
    """A contract method that the servicer lacks is NotSupported, with a message for the caller."""
    lacking = type("Servicer", (guardrails_pb2_grpc.GuardrailsServiceServicer,), {})()

    def add(server: grpc.aio.Server) -> None:
        guardrails_pb2_grpc.add_GuardrailsServiceServicer_to_server(lacking, server)

    async with grpc_service(GUARDRAILS, add) as channel:
        with pytest.raises(NotSupported, match="The service does not offer this call"):
            await rpc.unary(guardrails_pb2_grpc.GuardrailsServiceStub(channel).DetectText, ASK, Deadline.after(600))
