import asyncio
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import grpc
import pytest
from causeway.generator.v1 import generator_pb2, generator_pb2_grpc
from causeway_testing.servers import eventually, free_ports, grpc_service, measured, traced
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client import CollectorRegistry
from servicekit import metrics, rpc
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, InvalidRequest

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
    """Return how many calls of each method ended with each code, on one side."""
    return {
        (labels["rpc_method"].removeprefix(f"{METHOD}/"), labels["rpc_response_status_code"]): value
        for labels, value in measured(f"rpc_{side}_call_duration_seconds_count")
    }


async def test_calls_are_measured_on_both_sides() -> None:
    """Each call counts once on each side, with its method and code: success, error, or left by the caller."""
    measured("")
    before = {side: counts(side) for side in ("client", "server")}
    add = generator_pb2_grpc.add_GeneratorServiceServicer_to_server
    async with grpc_service(GENERATOR, lambda server: add(Generator(), server)) as channel:
        stub: Any = generator_pb2_grpc.GeneratorServiceStub(channel)
        await rpc.unary(stub.ListModels, generator_pb2.ListModelsRequest(), Deadline.after(120))
        with pytest.raises(CausewayError):
            await rpc.unary(stub.CountTokens, generator_pb2.CountTokensRequest(), Deadline.after(120))
        messages = rpc.server_stream(stub.Generate, generator_pb2.GenerateRequest(), Deadline.after(120))
        async for _ in messages:
            break
        await messages.aclose()
        await eventually(lambda: sum(counts("server").values()) >= sum(before["server"].values()) + 3)
    for side in ("client", "server"):
        after = counts(side)
        grown = {key: value - before[side].get(key, 0) for key, value in after.items()}
        assert {key: value for key, value in grown.items() if value} == {
            ("ListModels", "OK"): 1,
            ("CountTokens", "INVALID_ARGUMENT"): 1,
            ("Generate", "CANCELLED"): 1,
        }, side


async def test_calls_have_the_attributes_of_the_conventions() -> None:
    """Both sides use the service's name in the method. A code that the caller expects is no error of its span."""
    traced("")
    add = generator_pb2_grpc.add_GeneratorServiceServicer_to_server
    async with grpc_service(GENERATOR, lambda server: add(Generator(), server)) as channel:
        stub: Any = generator_pb2_grpc.GeneratorServiceStub(channel)
        for expected in ((), (grpc.StatusCode.INVALID_ARGUMENT,)):
            with pytest.raises(InvalidRequest):
                await rpc.unary(
                    stub.CountTokens, generator_pb2.CountTokensRequest(), Deadline.after(5), expected=expected
                )
    of_method = traced(f"{METHOD}/CountTokens")
    attributes = {"rpc.system.name": "grpc", "rpc.method": f"{METHOD}/CountTokens"}
    refused = attributes | {"rpc.response.status_code": "INVALID_ARGUMENT"}
    unexpected, answered = [span for span in of_method if span.kind is SpanKind.CLIENT][-2:]
    called = refused | {name: (unexpected.attributes or {})[name] for name in ("server.address", "server.port")}
    assert dict(unexpected.attributes or {}) == called | {"error.type": "INVALID_ARGUMENT"}
    assert unexpected.status.status_code is StatusCode.ERROR
    assert dict(answered.attributes or {}) == called
    assert answered.status.status_code is StatusCode.UNSET
    for span in [span for span in of_method if span.kind is SpanKind.SERVER][-2:]:
        assert dict(span.attributes or {}) == refused
        assert span.status.status_code is StatusCode.UNSET
        assert span.instrumentation_scope is not None
        assert span.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"


async def test_metrics_on_a_separate_port() -> None:
    """A service without HTTP has its metrics on a separate port, which is free again afterwards."""
    (port,) = free_ports(1)
    with metrics.served(CollectorRegistry(), "127.0.0.1", port):
        async with aiohttp.ClientSession() as http, http.get(f"http://127.0.0.1:{port}/metrics") as response:
            assert response.status == 200
            assert response.content_type == "text/plain"
    with socket.create_server(("127.0.0.1", port)):
        pass
    with metrics.served(CollectorRegistry(), "127.0.0.1", None):
        pass


def test_a_gauge_is_read_at_each_scrape() -> None:
    """A gauge has the value that its callback returns at the scrape."""
    level = [3.0]
    metrics.observed(__name__, "causeway.test.level", "{thing}", "Things.", lambda: [(level[0], {"kind": "a"})])
    assert measured("causeway_test_level") == [({"kind": "a"}, 3.0)]
    level[0] = 5.0
    [(labels, value)] = measured("causeway_test_level")
    assert (labels, value) == ({"kind": "a"}, 5.0)


def test_the_number_of_values_of_a_label_is_bounded() -> None:
    """The first values have labels of their own and keep them. All later values share one label."""
    bounded = metrics.BoundedLabel(2)
    assert [bounded.label_for(name) for name in ("a", "b", "c", "a", "d", "b")] == [
        "a",
        "b",
        "other",
        "a",
        "other",
        "b",
    ]


def test_a_process_exports_its_metrics_from_its_start() -> None:
    """A counter with known labels exists before its first event, so that this event is an increase. The metrics
    include the process's own use of the machine, under Prometheus' names. They come from a separate process,
    because a process has only one provider.
    """
    code = """
from prometheus_client import CollectorRegistry, generate_latest
from servicekit import metrics
metrics.counter("m", "causeway.test.ended", "", "Ended.", [{"state": "dead"}])
metrics.observed_counter("m", "causeway.test.dropped", "", "Dropped.", lambda: 3)
registry = CollectorRegistry()
metrics.install(registry)
print(generate_latest(registry).decode())
"""
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert 'causeway_test_ended_total{state="dead"} 0.0' in shown
    assert "causeway_test_dropped_total 3.0" in shown
    for name in ("process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"):
        assert f"\n{name} " in shown
