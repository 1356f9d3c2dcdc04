import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from causeway.generator.v1 import generator_pb2, generator_pb2_grpc
from causeway_testing.servers import eventually
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from servicekit import rpc
from servicekit.channel import open_channel
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest, Unavailable
from servicekit.server import GrpcServer, Health
from servicekit.settings import GrpcServiceSettings

GENERATOR = generator_pb2.DESCRIPTOR.services_by_name["GeneratorService"]
GENERATE = generator_pb2.GenerateRequest()
PART = generator_pb2.GenerateResponse()


class Generator(generator_pb2_grpc.GeneratorServiceServicer):
    """Streams a message, and a second one when the test allows it."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.started = 0
        self.ended = 0

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802  # the contract's name
        self.started += 1
        try:
            yield PART
            await self.go.wait()
            yield PART
        finally:
            self.ended += 1

    async def CountTokens(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        return generator_pb2.CountTokensResponse()

    async def ListModels(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        return generator_pb2.ListModelsResponse()


class Running:
    """Runs a server with its servicer and a stub."""

    def __init__(self, **options: Any) -> None:
        self.servicer = Generator()
        add = generator_pb2_grpc.add_GeneratorServiceServicer_to_server
        self.server = GrpcServer("127.0.0.1:0", [(GENERATOR, lambda it: add(self.servicer, it))], **options)
        self.channel = open_channel(f"127.0.0.1:{self.server.port}", [GENERATOR])
        self.stub: Any = generator_pb2_grpc.GeneratorServiceStub(self.channel)

    def generate(self) -> Any:
        return rpc.server_stream(self.stub.Generate, GENERATE, Deadline.after(120))

    async def count(self) -> None:
        await rpc.unary(self.stub.CountTokens, generator_pb2.CountTokensRequest(), Deadline.after(5))


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    one = Running()
    await one.server.start()
    yield one
    await one.channel.close()
    await one.server.stop(0)


async def test_a_running_stream_may_finish(running: Running) -> None:
    """After `stop`, new calls are refused, and running calls finish."""
    messages = running.generate()
    await anext(messages)
    stopping = asyncio.create_task(running.server.stop(10))
    while True:
        try:
            await running.count()
        except Unavailable:
            break
    assert not stopping.done()
    running.servicer.go.set()
    assert [message async for message in messages] == [PART]
    await asyncio.wait_for(stopping, 60)


async def test_calls_after_the_grace_period_are_cancelled(running: Running) -> None:
    """After the grace period, running calls are cancelled on both sides."""
    messages = running.generate()
    await anext(messages)
    await asyncio.wait_for(running.server.stop(0.2), 60)
    with pytest.raises(Unavailable):
        await anext(messages)
    await eventually(lambda: running.servicer.ended == 1, what="the handler's end")


async def test_an_idle_server_stops_at_once(running: Running) -> None:
    """Without running calls, the server stops before the end of the grace period."""
    await running.count()
    await asyncio.wait_for(running.server.stop(600), 60)


async def test_a_port_in_use_is_reported(running: Running) -> None:
    """A second server on the same port raises an error that names the address."""
    address = f"127.0.0.1:{running.server.port}"
    with pytest.raises(Unavailable, match=f"Cannot listen on {address}") as caught:
        GrpcServer(address, [])
    assert caught.value.resource == address


async def test_calls_beyond_the_limit_are_refused() -> None:
    """Calls beyond the limit are refused at once and not queued."""
    one = Running(max_concurrent_calls=2)
    await one.server.start()
    streams = [one.generate(), one.generate()]
    for messages in streams:
        await anext(messages)
    with pytest.raises(Unavailable):
        await anext(one.generate())
    assert one.servicer.started == 2
    await streams[0].aclose()
    one.servicer.go.set()
    assert [message async for message in streams[1]] == [PART]
    await one.count()
    await one.channel.close()
    await one.server.stop(0)


async def test_reflection_lists_the_services(running: Running) -> None:
    """Reflection lists the services, so that tools need no copy of the contracts."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{running.server.port}") as opened:
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(cast("Any", opened))  # types of the synchronous one
        call = stub.ServerReflectionInfo(iter([reflection_pb2.ServerReflectionRequest(list_services="")]))
        answer = await call.read()
    assert {service.name for service in answer.list_services_response.service} == {
        "causeway.generator.v1.GeneratorService",
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


async def test_serve_until_stops_after_the_event(running: Running, log: Any) -> None:
    """The server serves until the event is set, lets running calls finish, and logs its address."""
    stop = asyncio.Event()
    one = Running()
    serving = asyncio.create_task(one.server.serve_until(stop, grace=10))
    await one.count()
    messages = one.generate()
    await anext(messages)
    stop.set()
    one.servicer.go.set()
    assert [message async for message in messages] == [PART]
    await asyncio.wait_for(serving, 60)
    assert [entry["event"] for entry in log if entry["event"] != "call answered"] == ["serving", "draining"]
    assert (log[0]["port"], log[0]["services"]) == (one.server.port, ["causeway.generator.v1.GeneratorService"])
    await one.channel.close()


@pytest.fixture
async def server() -> AsyncIterator[GrpcServer]:
    one = GrpcServer("127.0.0.1:0", [(GENERATOR, lambda _: None)])
    await one.start()
    yield one
    await one.stop(0)


@pytest.fixture
async def stub(server: GrpcServer) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield health_pb2_grpc.HealthStub(channel)


@pytest.mark.parametrize("service", ["", "causeway.generator.v1.GeneratorService"])
async def test_a_started_server_serves(stub: Any, service: str) -> None:
    """The server and each of its services are SERVING once they are started."""
    assert (await stub.Check(HealthCheckRequest(service=service))).status == HealthCheckResponse.SERVING


async def test_an_unknown_service_is_not_found(stub: Any) -> None:
    """The check of an unknown service returns the protocol's own code."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Check(HealthCheckRequest(service="somebody.else"))
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize(
    ("service", "first", "last"),
    [
        ("", HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING),
        (GENERATOR.full_name, HealthCheckResponse.SERVING, HealthCheckResponse.NOT_SERVING),
        ("somebody.else", HealthCheckResponse.SERVICE_UNKNOWN, HealthCheckResponse.SERVICE_UNKNOWN),
    ],
)
async def test_watches_end_at_the_drain_and_do_not_delay_it(
    server: GrpcServer, stub: Any, service: str, first: int, last: int
) -> None:
    """At a drain, each watcher is told, its watch ends, and the server stops early."""
    watches = [stub.Watch(HealthCheckRequest(service=service)) for _ in range(3)]
    assert [(await watch.read()).status for watch in watches] == [first] * 3
    watches[0].cancel()  # the others stay
    stopping = asyncio.create_task(server.stop(600))
    assert [(await watch.read()).status for watch in watches[1:]] == [last] * 2
    assert [await watch.read() for watch in watches[1:]] == [grpc.aio.EOF] * 2
    await asyncio.wait_for(stopping, 60)


async def test_a_watch_during_a_drain_ends_after_one_response() -> None:
    """A watch that begins during a drain gets one answer and ends."""
    servicer = Health(["a"])
    servicer.drain()
    context: Any = None
    answers = [answer.status async for answer in servicer.Watch(HealthCheckRequest(service="a"), context)]
    assert answers == [HealthCheckResponse.NOT_SERVING]
    assert (await servicer.Check(HealthCheckRequest(service="a"), context)).status == answers[0]


async def test_a_socket_replaces_the_port(tmp_path: Path) -> None:
    """Calls and health checks use the socket, and no port is open. The socket of a dead process does not matter."""
    tmp_path.chmod(0o700)
    path = tmp_path / "generator.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    add = generator_pb2_grpc.add_GeneratorServiceServicer_to_server
    settings = GrpcServiceSettings(grpc_socket=path)
    server = GrpcServer.of(settings, 0, [(GENERATOR, lambda it: add(Generator(), it))])
    await server.start()
    assert server.port == 0
    async with open_channel(f"unix:{path}", [GENERATOR]) as channel:
        stub: Any = generator_pb2_grpc.GeneratorServiceStub(channel)
        await rpc.unary(stub.CountTokens, generator_pb2.CountTokensRequest(), Deadline.after(60))
        health: Any = health_pb2_grpc.HealthStub(channel)
        assert (await health.Check(HealthCheckRequest())).status == HealthCheckResponse.SERVING
    with pytest.raises(Unavailable, match="another process uses it"):
        GrpcServer.of(settings, 0, [])
    await server.stop(0)


@pytest.mark.parametrize("mode", [0o750, 0o701])
async def test_a_socket_that_others_could_reach_is_refused(tmp_path: Path, mode: int) -> None:
    """The socket's directory must belong to its owner alone. A missing directory is also a wrong setting."""
    tmp_path.chmod(mode)
    with pytest.raises(InvalidRequest, match="chmod 700"):
        GrpcServer.of(GrpcServiceSettings(grpc_socket=tmp_path / "retriever.sock"), 0, [])
    with pytest.raises(InvalidRequest, match="No such file or directory"):
        GrpcServer.of(GrpcServiceSettings(grpc_socket=tmp_path / "away" / "retriever.sock"), 0, [])
