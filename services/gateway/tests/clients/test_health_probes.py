import asyncio
from typing import Any

from causeway.generator.v1 import generator_pb2_grpc
from causeway_testing.servers import free_ports
from gateway.clients.generator import DESCRIPTOR
from gateway.clients.health_probes import GrpcProbe
from servicekit.channel import open_channel
from servicekit.deadline import Deadline
from servicekit.server import GrpcServer


class UnusedGenerator(generator_pb2_grpc.GeneratorServiceServicer):
    """A generator of which only the health is checked."""


def server() -> GrpcServer:
    def add(grpc_server: Any) -> None:
        generator_pb2_grpc.add_GeneratorServiceServicer_to_server(UnusedGenerator(), grpc_server)  # type: ignore[abstract]  # never called

    return GrpcServer("127.0.0.1:0", [(DESCRIPTOR, add)])


async def test_a_running_service_has_no_problem() -> None:
    """A running service has no problem, and a stopped one has."""
    service = server()
    await service.start()
    async with open_channel(f"127.0.0.1:{service.port}", [DESCRIPTOR]) as channel:
        probe = GrpcProbe("generator", channel)
        assert probe.name == "generator"
        assert await probe.check(Deadline.after(5)) is None
        await service.stop(0)
        assert await probe.check(Deadline.after(2)) is not None


async def test_an_unreachable_service_is_reported() -> None:
    """A service that cannot be reached is reported within the deadline."""
    [port] = free_ports(1)
    async with open_channel(f"127.0.0.1:{port}", [DESCRIPTOR]) as channel:
        assert await GrpcProbe("generator", channel).check(Deadline.after(1)) in (
            "unavailable",
            "deadline exceeded",
        )


async def test_a_silent_service_is_reported() -> None:
    """A service that accepts connections and never answers is reported within the deadline."""
    finished, closed = asyncio.Event(), asyncio.Event()

    async def silence(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await finished.wait()
        writer.close()
        closed.set()

    async with await asyncio.start_server(silence, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        async with open_channel(f"127.0.0.1:{port}", [DESCRIPTOR]) as channel:
            assert await GrpcProbe("generator", channel).check(Deadline.after(0.2)) is not None
        finished.set()
        await closed.wait()
