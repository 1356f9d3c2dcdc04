import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from causeway.generator.v1 import generator_pb2
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from servicekit import health
from servicekit.server import GrpcServer

GENERATOR = generator_pb2.DESCRIPTOR.services_by_name["GeneratorService"]


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
    """The server as a whole and each of its services are SERVING as soon as they can be asked."""
    assert (await stub.Check(HealthCheckRequest(service=service))).status == HealthCheckResponse.SERVING


async def test_an_unknown_service_is_not_found(stub: Any) -> None:
    """A check of a service that is not here says so, by the protocol's own code."""
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
async def test_watchers_hear_of_the_drain_and_do_not_hold_it_up(
    server: GrpcServer, stub: Any, service: str, first: int, last: int
) -> None:
    """Every watcher is told that the server takes no more calls, its watch ends, and the server stops at once."""
    watches = [stub.Watch(HealthCheckRequest(service=service)) for _ in range(3)]
    assert [(await watch.read()).status for watch in watches] == [first] * 3
    watches[0].cancel()  # the others stay
    begin = time.monotonic()
    stopping = asyncio.create_task(server.stop(30))
    assert [(await watch.read()).status for watch in watches[1:]] == [last] * 2
    assert [await watch.read() for watch in watches[1:]] == [grpc.aio.EOF] * 2
    await stopping
    assert time.monotonic() - begin < 2


async def test_a_drained_server_says_so_once() -> None:
    """Whoever begins to watch during a drain gets one answer, and the end."""
    servicer = health.Health(["a"])
    servicer.drain()
    context: Any = None
    answers = [answer.status async for answer in servicer.Watch(HealthCheckRequest(service="a"), context)]
    assert answers == [HealthCheckResponse.NOT_SERVING]
    assert (await servicer.Check(HealthCheckRequest(service="a"), context)).status == answers[0]


def test_the_name_is_the_protocols() -> None:
    """Reflection lists the health service under the name that probes call it by."""
    assert health.SERVICE_NAME == "grpc.health.v1.Health"
