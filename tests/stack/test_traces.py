from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from servicekit.testing import eventually


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Receives spans over OTLP and keeps them with the name of their service."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []

    async def Export(self, request: Any, context: Any) -> Any:  # noqa: N802  # named by the protocol
        for resource in request.resource_spans:
            [service] = [a.value.string_value for a in resource.resource.attributes if a.key == "service.name"]
            for scope in resource.scope_spans:
                self.spans += [(service.removeprefix("causeway-"), span) for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    def edges(self, trace_id: str) -> set[tuple[str, str]]:
        """Pairs of services, parent and child, of one trace."""
        spans = [(service, span) for service, span in self.spans if span.trace_id.hex() == trace_id]
        owner = {span.span_id: service for service, span in spans}
        return {
            (owner[span.parent_span_id], service)
            for service, span in spans
            if span.parent_span_id in owner and owner[span.parent_span_id] != service
        }


@pytest.fixture
async def collector() -> AsyncIterator[tuple[Collector, str]]:
    server = grpc.aio.server()
    found = Collector()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(found, server)  # type: ignore[no-untyped-call]  # generated without types
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield found, f"http://127.0.0.1:{port}"
    await server.stop(0)


async def test_one_question_is_one_trace(
    tmp_path: Path, collector: tuple[Collector, str], start_stack: Any
) -> None:
    """Parent → child between the services as the architecture draws it; a job's trace links to its upload."""
    found, endpoint = collector
    environment = {"CAUSEWAY_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    async with start_stack(tmp_path / "data", **environment) as stack:
        job = await stack.ingest()
        detectors = {side: {"regex": {"regex": ["email"], "action": "redact"}} for side in ("input", "output")}
        answer = await stack.http.post("/chat", json=stack.question(detectors=detectors))
        trace_id = answer.headers["x-trace-id"]
        expected = {("gateway", "retriever"), ("gateway", "generator"), ("gateway", "guardrails")}
        await eventually(lambda: found.edges(trace_id) == expected, within=20, what="the edges")

        def jobs() -> list[Any]:
            return [
                span
                for service, span in found.spans
                if service == "ingest" and job["trace_id"] in {link.trace_id.hex() for link in span.links}
            ]

        await eventually(lambda: len(jobs()) == 1, within=20, what="the job's span with its link")
        own = jobs()[0].trace_id.hex()
        await eventually(lambda: ("ingest", "retriever") in found.edges(own), within=20, what="the hand-over")
