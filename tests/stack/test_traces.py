import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from causeway_testing.servers import eventually
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


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

    def of(self, trace_id: str) -> list[tuple[str, Any]]:
        """The spans of one trace, each with its service."""
        return [(service, span) for service, span in self.spans if span.trace_id.hex() == trace_id]

    def edges(self, trace_id: str) -> set[tuple[str, str]]:
        """Pairs of services, parent and child, of one trace."""
        spans = self.of(trace_id)
        owner = {span.span_id: service for service, span in spans}
        return {
            (owner[span.parent_span_id], service)
            for service, span in spans
            if span.parent_span_id in owner and owner[span.parent_span_id] != service
        }

    def calls(self, trace_id: str) -> set[str]:
        """The methods of services that were called in one trace, each below its caller's span."""
        spans = self.of(trace_id)
        callers = {span.span_id for _, span in spans if span.kind == span.SPAN_KIND_CLIENT}
        return {
            span.name.rpartition("/")[2]
            for _, span in spans
            if span.kind == span.SPAN_KIND_SERVER and span.parent_span_id in callers
        }

    def steps(self, trace_id: str) -> dict[str, float]:
        """Milliseconds of the spans right below the request's own."""
        spans = self.of(trace_id)
        roots = {
            span.span_id for _, span in spans if span.kind == span.SPAN_KIND_SERVER and not span.parent_span_id
        }
        found: dict[str, float] = {}
        for _, span in spans:
            if span.parent_span_id in roots and span.kind == span.SPAN_KIND_INTERNAL:
                spent = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
                found[span.name] = found.get(span.name, 0.0) + spent
        return found

    def attributes(self, trace_id: str, name: str) -> dict[str, Any]:
        """The attributes of a trace's span of a name, as JSON has them; none where it is not there yet."""
        for _, span in self.of(trace_id):
            if span.name == name:
                return {each.key: MessageToDict(each.value) for each in span.attributes}
        return {}

    def named(self, trace_id: str, name: str) -> list[Any]:
        """The spans of a trace with a name."""
        return [span for _, span in self.of(trace_id) if span.name == name]

    def errors(self, trace_id: str) -> list[str]:
        """The names of a trace's spans that failed."""
        return [span.name for _, span in self.of(trace_id) if span.status.code == span.status.STATUS_CODE_ERROR]

    def linked(self, trace_id: str) -> list[str]:
        """Ids of the traces of jobs that link to one."""
        return [
            span.trace_id.hex()
            for service, span in self.spans
            if service == "ingest" and trace_id in {link.trace_id.hex() for link in span.links}
        ]


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
        await eventually(lambda: found.edges(trace_id) == expected, what="the edges")

        await eventually(lambda: len(found.linked(job["trace_id"])) == 1, what="the job's link")
        [own] = found.linked(job["trace_id"])
        await eventually(lambda: "Upsert" in found.calls(own), what="the hand-over")
        assert found.edges(own) == {("ingest", "retriever")}

        # A document that is ingested for the first time is not there before; that is no error.
        await eventually(
            lambda: bool(found.named(own, "process CAUSEWAY_INGEST")), within=20, what="the job's own span"
        )
        assert {"GetIndex", "GetDocument"} <= found.calls(own)
        assert found.errors(own) == found.errors(job["trace_id"]) == []
        [sent] = found.named(job["trace_id"], "publish CAUSEWAY_INGEST")
        [worked] = found.named(own, "process CAUSEWAY_INGEST")
        assert sent.span_id in {link.span_id for link in worked.links}
        said = found.attributes(job["trace_id"], sent.name)
        assert said.pop("messaging.message.body.size")
        assert said == {
            "messaging.system": {"stringValue": "nats"},
            "messaging.operation.name": {"stringValue": "publish"},
            "messaging.operation.type": {"stringValue": "send"},
            "messaging.destination.name": {"stringValue": "CAUSEWAY_INGEST"},
            "messaging.message.id": {"stringValue": job["id"]},
        }


async def test_every_way_is_one_trace(tmp_path: Path, collector: tuple[Collector, str], start_stack: Any) -> None:
    """Streams, the watch on an answer, the orchestrator's routes, documents that come as text; and a trace says of
    the steps what the thoughts say, and `causeway ask --trace`.
    """
    found, endpoint = collector
    environment = {"CAUSEWAY_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    async with start_stack(tmp_path / "data", **environment) as stack:
        documents = [{"doc_id": "tides", "text": "High water at Kelsay is at six in the morning."}]
        made = await stack.http.post("/index", json={"index_name": "tides", "documents": documents})
        texts = made.raise_for_status().headers["x-trace-id"]
        await eventually(lambda: len(found.linked(texts)) == 1, what="the link of texts")
        [own] = found.linked(texts)
        await eventually(lambda: "Upsert" in found.calls(own), what="the texts' hand-over")

        detectors = {side: {"regex": {"regex": ["email"], "action": "redact"}} for side in ("input", "output")}
        answer = await stack.http.post("/2024-04/chat/stream", json=stack.question(detectors=detectors))
        streamed = answer.headers["x-trace-id"]
        wanted = {"Retrieve", "DetectText", "Detect", "Generate"}
        await eventually(lambda: found.calls(streamed) >= wanted, what="the calls of a stream")
        last = json.loads(answer.text.splitlines()[-1])
        told = last["context"]["thoughts"][-1]["props"]["steps"]
        spent = {step["name"]: step["duration_ms"] for step in told}
        await eventually(lambda: found.steps(streamed).keys() == spent.keys(), what="the steps")
        assert found.steps(streamed) == pytest.approx(spent, abs=0.002)
        attributes = found.attributes(streamed, "retrieval tides")
        inside = next(step["steps"] for step in told if step["name"] == "retrieve")
        assert {f"causeway.step.{step['name']}.ms": step["duration_ms"] for step in inside} == {
            name: value["doubleValue"] for name, value in attributes.items() if name.startswith("causeway.step.")
        }
        assert "Kelsay" not in str([span for _, span in found.of(streamed)])

        body = {
            "model": "extractive",
            "messages": [{"role": "user", "content": "Hello"}],
            "detectors": {"input": {"regex": {"regex": ["email"]}}, "output": {"regex": {"regex": ["email"]}}},
        }
        response = await stack.http.post("/api/v2/chat/completions-detection", json=body)
        asked = response.headers["x-trace-id"]
        await eventually(lambda: found.calls(asked) >= {"DetectText", "Generate"}, what="the orchestrator's")
        content = {"content": "x", "detectors": {"regex": {"regex": ["email"]}}}
        response = await stack.http.post("/api/v2/text/detection/content", json=content)
        judged = response.raise_for_status().headers["x-trace-id"]
        await eventually(lambda: "DetectText" in found.calls(judged), what="the detection's call")
        assert found.edges(judged) == {("gateway", "guardrails")}

        shown = await _ask(stack, "--json", "--trace")
        trace_id = shown["trace_id"]
        spent = {step["name"]: step["duration_ms"] for step in shown["trace"]}
        await eventually(lambda: found.steps(trace_id).keys() == spent.keys(), what="the steps shown")
        assert found.steps(trace_id) == pytest.approx(spent, abs=0.002)


async def _ask(stack: Any, *options: str) -> Any:
    """What `causeway ask` prints of an answer."""
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("causeway")),
        *("ask", "When is high water at Kelsay?", "--index", "tides", "--url", str(stack.http.base_url), *options),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await process.communicate()
    return json.loads(said)
