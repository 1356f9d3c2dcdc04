import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from causeway.generator.v1 import generator_pb2, generator_pb2_grpc
from prometheus_client import CollectorRegistry
from servicekit import metrics, rpc
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, InvalidRequest
from servicekit.testing import free_ports, grpc_service, measured

GENERATOR = generator_pb2.DESCRIPTOR.services_by_name["GeneratorService"]
METHOD = "causeway.generator.v1.GeneratorService"


class Generator(generator_pb2_grpc.GeneratorServiceServicer):
    """Streams without end, refuses to count, and lists nothing."""

    async def Generate(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802  # the contract's name
        while True:
            yield generator_pb2.GenerateResponse()
            await asyncio.sleep(0.001)

    async def CountTokens(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        raise InvalidRequest("No.", field="texts")

    async def ListModels(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        return generator_pb2.ListModelsResponse()


def counts(side: str) -> dict[tuple[str, str], float]:
    """How many calls of each method ended with each code, on one side."""
    return {
        (labels["rpc_method"].rpartition("/")[2], labels["rpc_response_status_code"]): value
        for labels, value in measured(f"rpc_{side}_call_duration_seconds_count")
    }


async def test_calls_are_measured_on_both_sides() -> None:
    """Each once, with its method and the code that it ended with: well, with an error, left by the caller."""
    measured("")
    before = {side: counts(side) for side in ("client", "server")}
    add = generator_pb2_grpc.add_GeneratorServiceServicer_to_server
    async with grpc_service(GENERATOR, lambda server: add(Generator(), server)) as channel:
        stub: Any = generator_pb2_grpc.GeneratorServiceStub(channel)
        await rpc.unary(stub.ListModels, generator_pb2.ListModelsRequest(), Deadline.after(5))
        with pytest.raises(CausewayError):
            await rpc.unary(stub.CountTokens, generator_pb2.CountTokensRequest(), Deadline.after(5))
        messages = rpc.server_stream(stub.Generate, generator_pb2.GenerateRequest(), Deadline.after(5))
        async for _ in messages:
            break
        await messages.aclose()
        await asyncio.sleep(0.1)
    for side in ("client", "server"):
        after = counts(side)
        grown = {key: value - before[side].get(key, 0) for key, value in after.items()}
        assert {key: value for key, value in grown.items() if value} == {
            ("ListModels", "OK"): 1,
            ("CountTokens", "INVALID_ARGUMENT"): 1,
            ("Generate", "CANCELLED"): 1,
        }, side


async def test_a_port_of_their_own() -> None:
    """A service without HTTP has its metrics on a port of their own, which is free again afterwards."""
    (port,) = free_ports(1)
    with metrics.served(CollectorRegistry(), "127.0.0.1", port):
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/metrics") as response:
            assert response.status == 200
            assert response.content_type == "text/plain"
    with socket.create_server(("127.0.0.1", port)):
        pass
    with metrics.served(CollectorRegistry(), "127.0.0.1", None):
        pass


def test_values_that_are_asked_for() -> None:
    """A gauge has what its callback says at the time of the scrape."""
    level = [3.0]
    metrics.observed(__name__, "causeway.test.level", "{thing}", "Things.", lambda: [(level[0], {"kind": "a"})])
    assert measured("causeway_test_level") == [({"kind": "a"}, 3.0)]
    level[0] = 5.0
    [(labels, value)] = measured("causeway_test_level")
    assert (labels, value) == ({"kind": "a"}, 5.0)


def test_a_label_that_others_choose_is_bounded() -> None:
    """The first have labels of their own and keep them; all others share one."""
    bounded = metrics.Bounded(2)
    assert [bounded.known(name) for name in ("a", "b", "c", "a", "d", "b")] == [
        "a",
        "b",
        "other",
        "a",
        "other",
        "b",
    ]
