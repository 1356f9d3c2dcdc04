import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Callable

import httpx
import pytest
from gateway.domain import Batch, Found, Retrieval
from gateway.fakes import FakeGenerator
from gateway.fakes_retrieval import FakeRetriever
from gateway.main import build_app
from gateway.ports import Prompt
from gateway.settings import Settings
from gateway.timeline import Timeline
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from servicekit.deadline import Deadline
from servicekit.principal import Principal
from starlette.types import ASGIApp

QUESTION = {"messages": [{"role": "user", "content": "When does the ferry leave?"}]}
CLOSE = 0.1


class SlowRetriever(FakeRetriever):
    """Takes long to find anything."""

    async def retrieve(
        self, principal: Principal, retrieval: Retrieval, query: str, top: int, deadline: Deadline
    ) -> Found:
        await asyncio.sleep(0.4)
        return await super().retrieve(principal, retrieval, query, top, deadline)


class SlowGenerator(FakeGenerator):
    """Thinks before it speaks, and between its words."""

    async def generate(self, prompt: Prompt, deadline: Deadline) -> AsyncGenerator[Batch, None]:
        await asyncio.sleep(0.6)
        async for batch in super().generate(prompt, deadline):
            yield batch
            await asyncio.sleep(0.15)


@pytest.fixture
async def slow(fakes, serve: Callable[[ASGIApp], int], settings: Settings):  # type: ignore[no-untyped-def]  # pytest reads the generator
    fakes.retriever = SlowRetriever(fakes.retriever.indexes)
    fakes.generator = SlowGenerator(fakes.generator.script)
    port = serve(build_app(settings, fakes.services()))
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=30) as http:
        await http.get("/healthz")  # the connection is there
        yield http


async def test_the_steps_of_an_answer_add_up_to_what_a_clock_outside_says(slow: httpx.AsyncClient) -> None:
    """In the header and in the thoughts, within a tenth: no waiting is left out, none is counted twice."""
    begin = time.perf_counter()
    response = await slow.post("/chat", json=QUESTION)
    outside = (time.perf_counter() - begin) * 1000
    told = {
        name: float(spent)
        for name, spent in re.findall(r"([\w-]+);dur=([\d.]+)", response.headers["server-timing"])
    }
    assert told["retrieve"] >= 400
    assert told["first-token"] >= 600
    assert _spent(told) == pytest.approx(outside, rel=CLOSE)
    thoughts = {thought["title"]: thought["props"] for thought in response.json()["context"]["thoughts"]}
    listed = sum(thought["duration_ms"] for thought in thoughts.values())
    assert listed == pytest.approx(outside, rel=CLOSE)


async def test_the_first_token_comes_when_the_steps_say(slow: httpx.AsyncClient) -> None:
    """A stream's first words, and its end, at the times that its last line tells, within a tenth."""
    begin = time.perf_counter()
    first = 0.0
    async with slow.stream("POST", "/chat/stream", json=QUESTION) as response:
        lines = []
        async for line in response.aiter_lines():
            lines.append(json.loads(line))
            if not first and lines[-1].get("delta", {}).get("content"):
                first = (time.perf_counter() - begin) * 1000
    outside = (time.perf_counter() - begin) * 1000
    steps = lines[-1]["context"]["thoughts"][-1]["props"]["steps"]
    told = {step["name"].replace(" ", "-"): step["duration_ms"] for step in steps}
    before = _spent(told) - told["generate"]
    assert before + told["first-token"] == pytest.approx(first, rel=CLOSE)
    assert _spent(told) == pytest.approx(outside, rel=CLOSE)


@pytest.mark.parametrize("path", ["/2024-04/chat", "/2024-04/chat/stream"])
async def test_the_trace_says_the_same(client: httpx.AsyncClient, spans: InMemorySpanExporter, path: str) -> None:
    """Each step of the thoughts is a span of the request's trace, below the request, and as long."""
    body = QUESTION | {"context": {"overrides": {"index": "docs"}}}
    response = await client.post(path, json=body)
    last = json.loads(response.text.splitlines()[-1])
    told = {step["name"]: step["duration_ms"] for step in last["context"]["thoughts"][-1]["props"]["steps"]}
    own = [
        span
        for span in spans.get_finished_spans()
        if format(span.context.trace_id, "032x") == response.headers["x-trace-id"]
    ]
    [request] = [span for span in own if span.kind is SpanKind.SERVER]
    seen = {}
    for span in own:
        if span is not request:
            assert span.parent is not None
            assert span.parent.span_id == request.context.span_id
            assert span.end_time is not None
            assert span.start_time is not None
            seen[span.name] = (span.end_time - span.start_time) / 1e6
    assert told.keys() >= {"retrieve", "first token", "generate"}
    assert seen == pytest.approx(told, abs=0.002)


def _spent(told: dict[str, float]) -> float:
    """All of the time, in milliseconds: the first token is part of the generation."""
    return sum(spent for name, spent in told.items() if name != "first-token")


def test_steps_are_timed_in_the_order_in_which_they_end() -> None:
    """Durations in milliseconds, of steps that fail, too."""
    timeline = Timeline()
    with timeline.step("outer"):
        with timeline.step("inner"):
            time.sleep(0.01)
        with pytest.raises(ValueError, match="x"), timeline.step("failed"):
            raise ValueError("x")
    assert [step.name for step in timeline.steps] == ["inner", "failed", "outer"]
    inner, _, outer = timeline.steps
    assert 10 <= inner.duration_ms <= outer.duration_ms < 5000


def test_what_is_done_twice_is_one_step() -> None:
    """A second search after a redaction: one step, with the time of both."""
    timeline = Timeline()
    timeline.add("retrieve", 0.001)
    timeline.add("retrieve", 0.0025)
    assert [(step.name, step.duration_ms) for step in timeline.steps] == [("retrieve", 3.5)]


def test_what_a_service_says_of_its_own_steps() -> None:
    """Stands below the step that asked it; what was done twice is one step there, too."""
    timeline = Timeline()
    timeline.add("retrieve", 0.009)
    timeline.inside("retrieve", [("embed", 1.5), ("dense", 2.0)])
    timeline.inside("retrieve", [("dense", 0.5)])
    [step] = timeline.steps
    assert [(inner.name, inner.duration_ms) for inner in step.inner] == [("embed", 1.5), ("dense", 2.5)]
