import asyncio
import json
import sys
from collections.abc import AsyncIterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import yaml
from causeway_testing.servers import eventually
from causeway_testing.trace_collector import Collector, collecting

TABLE = Path(__file__).with_name("traces.yaml")


@pytest.fixture
async def collector() -> AsyncIterator[tuple[Collector, str]]:
    async with collecting() as running:
        yield running


async def test_a_question_is_one_trace(tmp_path: Path, collector: tuple[Collector, str], start_stack: Any) -> None:
    """The trace of a question has the calls between the services that the architecture describes. The trace of a
    job has a link to the trace of its upload.
    """
    found, endpoint = collector
    environment = {"CAUSEWAY_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    async with start_stack(tmp_path / "data", **environment) as stack:
        job = await stack.ingest()
        detectors = {side: {"regex": {"regex": ["email"], "action": "redact"}} for side in ("input", "output")}
        answer = await stack.http.post("/chat", json=stack.question(detectors=detectors))
        trace_id = answer.headers["x-trace-id"]
        expected = {("gateway", "retriever"), ("gateway", "generator"), ("gateway", "guardrails")}
        await eventually(lambda: found.edges(trace_id) == expected, what="the calls between the services")

        await eventually(lambda: len(found.linked(job["trace_id"])) == 1, what="the job's link")
        [job_trace] = found.linked(job["trace_id"])
        await eventually(
            lambda: "StoreDocument" in found.calls(job_trace), what="the call that stores the document"
        )
        assert found.edges(job_trace) == {("ingest", "retriever")}

        # The job looks the new index up and does not find it. This is not an error.
        await eventually(
            lambda: bool(found.named(job_trace, "process CAUSEWAY_INGEST")), within=20, what="the job's own span"
        )
        assert found.calls(job_trace) == {"GetIndex", "StoreDocument"}
        assert found.errors(job_trace) == found.errors(job["trace_id"]) == []
        [sent] = found.named(job["trace_id"], "publish CAUSEWAY_INGEST")
        [processed] = found.named(job_trace, "process CAUSEWAY_INGEST")
        assert sent.span_id in {link.span_id for link in processed.links}
        attributes = found.attributes(job["trace_id"], sent.name)
        assert attributes.pop("messaging.message.body.size")
        assert attributes == {
            "messaging.system": {"stringValue": "nats"},
            "messaging.operation.name": {"stringValue": "publish"},
            "messaging.operation.type": {"stringValue": "send"},
            "messaging.destination.name": {"stringValue": "CAUSEWAY_INGEST"},
            "messaging.message.id": {"stringValue": job["id"]},
        }


async def test_every_attribute_is_in_the_table(
    tmp_path: Path, collector: tuple[Collector, str], start_stack: Any
) -> None:
    """The spans, their parents, status and attributes are those of traces.yaml. A change of this file must be in
    the change log, because operators search for these names and attributes.
    """
    found, endpoint = collector
    environment = {"CAUSEWAY_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    async with start_stack(tmp_path / "data", **environment) as stack:
        job = await stack.ingest()
        detectors = {side: {"regex": {"regex": ["email"], "action": "redact"}} for side in ("input", "output")}
        answer = await stack.http.post("/2024-04/chat/stream", json=stack.question(detectors=detectors))
        await eventually(lambda: len(found.linked(job["trace_id"])) == 1, what="the job's link")
    # The processes send their last spans before they end.
    traces = {
        "chat": answer.headers["x-trace-id"],
        "upload": job["trace_id"],
        "job": found.linked(job["trace_id"])[0],
    }
    for name, table in yaml.safe_load(TABLE.read_text()).items():
        missing: dict[str, Any] = {}
        pairs = zip_longest(found.tree(traces[name]), table, fillvalue=missing)
        assert [_typed(span, template) for span, template in pairs] == table


def _typed(span: dict[str, Any], template: dict[str, Any]) -> dict[str, Any]:
    """Replace the values of a span by their types where the table has types."""
    expected = template.get("attributes", {})
    shown = {
        key: f"<{type(value).__name__}>" if str(expected.get(key)).startswith("<") else value
        for key, value in span.get("attributes", {}).items()
    }
    return span | ({"attributes": shown} if span else {})


async def test_every_kind_of_request_is_one_trace(
    tmp_path: Path, collector: tuple[Collector, str], start_stack: Any
) -> None:
    """A stream, an answer with detectors, a request of the orchestrator's routes, and an upload of texts are one
    trace each. The trace, the thoughts and `causeway ask --trace` have the same steps.
    """
    found, endpoint = collector
    environment = {"CAUSEWAY_OTLP_ENDPOINT": endpoint, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    async with start_stack(tmp_path / "data", **environment) as stack:
        documents = [{"doc_id": "tides", "text": "High water at Kelsay is at six in the morning."}]
        response = await stack.http.post("/index", json={"index_name": "tides", "documents": documents})
        texts = response.raise_for_status().headers["x-trace-id"]
        await eventually(lambda: len(found.linked(texts)) == 1, what="the link to the upload of the texts")
        [job_trace] = found.linked(texts)
        await eventually(lambda: "StoreDocument" in found.calls(job_trace), what="the call that stores the texts")

        detectors = {side: {"regex": {"regex": ["email"], "action": "redact"}} for side in ("input", "output")}
        answer = await stack.http.post("/2024-04/chat/stream", json=stack.question(detectors=detectors))
        streamed = answer.headers["x-trace-id"]
        expected = {"Retrieve", "DetectText", "Detect", "Generate"}
        await eventually(lambda: found.calls(streamed) >= expected, what="the calls of a stream")
        last = json.loads(answer.text.splitlines()[-1])
        steps = last["context"]["thoughts"][-1]["props"]["steps"]
        spent = {step["name"]: step["duration_ms"] for step in steps}
        await eventually(lambda: found.steps(streamed).keys() == spent.keys(), what="the steps")
        assert found.steps(streamed) == pytest.approx(spent, abs=0.002)
        attributes = found.attributes(streamed, "retrieval tides")
        inside = next(step["steps"] for step in steps if step["name"] == "retrieve")
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
        completion = response.headers["x-trace-id"]
        await eventually(
            lambda: found.calls(completion) >= {"DetectText", "Generate"},
            what="the calls of the orchestrator's route",
        )
        content = {"content": "x", "detectors": {"regex": {"regex": ["email"]}}}
        response = await stack.http.post("/api/v2/text/detection/content", json=content)
        detection = response.raise_for_status().headers["x-trace-id"]
        await eventually(lambda: "DetectText" in found.calls(detection), what="the detection's call")
        assert found.edges(detection) == {("gateway", "guardrails")}

        shown = await _ask(stack, "--json", "--trace")
        trace_id = shown["trace_id"]
        spent = {step["name"]: step["duration_ms"] for step in shown["trace"]}
        await eventually(
            lambda: found.steps(trace_id).keys() == spent.keys(), what="the steps of the command's output"
        )
        assert found.steps(trace_id) == pytest.approx(spent, abs=0.002)


async def _ask(stack: Any, *options: str) -> Any:
    """Return the output of `causeway ask`."""
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("causeway")),
        *("ask", "When is high water at Kelsay?", "--index", "tides", "--url", str(stack.http.base_url), *options),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    return json.loads(output)
