import asyncio
from typing import Any

from causeway.generator.v1 import generator_pb2_grpc
from causeway_testing.servers import free_ports
from gateway.clients.generator import DESCRIPTOR
from gateway.clients.health_probes import GrpcProbe
from servicekit.channel import open_channel
from servicekit.deadline import Deadline
from servicekit.server import GrpcServer


class Nothing(generator_pb2_grpc.GeneratorServiceServicer):
    """A service that only its health is asked of."""


def server() -> GrpcServer:
    def add(grpc_server: Any) -> None:
        generator_pb2_grpc.add_GeneratorServiceServicer_to_server(Nothing(), grpc_server)  # type: ignore[abstract]  # never called

    return GrpcServer("127.0.0.1:0", [(DESCRIPTOR, add)])


async def test_a_service_that_serves_answers() -> None:
    """And one that is about to stop says so."""
    service = server()
    await service.start()
    async with open_channel(f"127.0.0.1:{service.port}", [DESCRIPTOR]) as channel:
        probe = GrpcProbe("generator", channel)
        assert probe.name == "generator"
        assert await probe.check(Deadline.after(5)) is None
        await service.stop(0)
        assert await probe.check(Deadline.after(2)) is not None


async def test_a_service_that_is_away() -> None:
    """Within its deadline, and found again when it comes."""
    [port] = free_ports(1)
    async with open_channel(f"127.0.0.1:{port}", [DESCRIPTOR]) as channel:
        assert await GrpcProbe("generator", channel).check(Deadline.after(1)) in (
            "unavailable",
            "deadline exceeded",
        )


async def test_a_service_that_hangs() -> None:
    """A port that takes connections and never speaks."""
    over, closed = asyncio.Event(), asyncio.Event()

    async def silence(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        writer.close()
        closed.set()

    async with await asyncio.start_server(silence, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        async with open_channel(f"127.0.0.1:{port}", [DESCRIPTOR]) as channel:
            assert await GrpcProbe("generator", channel).check(Deadline.after(0.2)) is not None
        over.set()
        await closed.wait()
