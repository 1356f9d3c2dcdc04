import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from causeway_testing.clock import virtual_time
from causeway_testing.gateway.answering import FakeGenerator
from causeway_testing.gateway.retrieval import FakeRetriever
from gateway.answering.timeline import Timeline
from gateway.domain import Action, Batch, Detector, Detectors, Retrieval, SearchResults
from gateway.main import build_app
from gateway.ports.answering import Prompt, Watch
from gateway.settings import Settings
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind
from servicekit.deadline import Deadline
from servicekit.principal import Principal
from starlette.types import ASGIApp

QUESTION = {"messages": [{"role": "user", "content": "When does the ferry leave?"}]}


class SlowRetriever(FakeRetriever):
    """A retriever that takes long."""

    async def retrieve(
        self, principal: Principal, retrieval: Retrieval, query: str, top: int, deadline: Deadline
    ) -> SearchResults:
        await asyncio.sleep(0.4)
        return await super().retrieve(principal, retrieval, query, top, deadline)


class SlowGenerator(FakeGenerator):
    """A generator that takes long before and between its words."""

    async def generate(self, prompt: Prompt, deadline: Deadline) -> AsyncGenerator[Batch, None]:
        await asyncio.sleep(0.6)
        async for batch in super().generate(prompt, deadline):
            yield batch
            await asyncio.sleep(0.15)


@pytest.fixture
def slow(fakes: Any, settings: Settings) -> ASGIApp:
    fakes.retriever = SlowRetriever(fakes.retriever.indexes)
    fakes.generator = SlowGenerator(fakes.generator.script)
    return build_app(settings, fakes.services())


async def ask(app: ASGIApp, path: str) -> tuple[dict[str, str], list[tuple[float, bytes]]]:
    """Ask the question; return the headers and the pieces of the body with their times in milliseconds."""
    begin = time.perf_counter()
    headers: dict[str, str] = {}
    pieces: list[tuple[float, bytes]] = []
    requests = [{"type": "http.request", "body": json.dumps(QUESTION).encode()}]

    async def receive() -> Any:
        return requests.pop() if requests else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        for name, value in message.get("headers", ()):
            headers[name.decode()] = value.decode()
        if body := message.get("body"):
            pieces.append(((time.perf_counter() - begin) * 1000, body))

    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"gateway"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    await app(scope, receive, send)
    return headers, pieces


@virtual_time
async def test_the_steps_of_an_answer_add_up_to_its_time(slow: ASGIApp) -> None:
    """The steps in the header and in the thoughts add up to the measured time of the answer."""
    headers, pieces = await ask(slow, "/chat")
    [(outside, body)] = pieces
    reported = {
        name: float(spent) for name, spent in re.findall(r"([\w-]+);dur=([\d.]+)", headers["server-timing"])
    }
    assert reported["retrieve"] == 400
    assert reported["first-token"] == 750  # after a first batch without text
    assert _total(reported) == pytest.approx(outside, abs=1)
    thoughts = {thought["title"]: thought["props"] for thought in json.loads(body)["context"]["thoughts"]}
    listed = sum(thought["duration_ms"] for thought in thoughts.values())
    assert listed == pytest.approx(outside, abs=1)


@virtual_time
async def test_the_times_of_the_steps_are_right(slow: ASGIApp) -> None:
    """The first token and the end of a stream come at the times in its last line."""
    _, pieces = await ask(slow, "/chat/stream")
    lines = [(at, json.loads(line)) for at, piece in pieces for line in piece.splitlines()]
    first = next(at for at, line in lines if line.get("delta", {}).get("content"))
    outside, last = lines[-1]
    steps = last["context"]["thoughts"][-1]["props"]["steps"]
    reported = {step["name"].replace(" ", "-"): step["duration_ms"] for step in steps}
    before = _total(reported) - reported["generate"]
    assert before + reported["first-token"] == pytest.approx(first, abs=1)
    assert _total(reported) == pytest.approx(outside, abs=1)


@pytest.mark.parametrize("path", ["/2024-04/chat", "/2024-04/chat/stream"])
async def test_the_trace_has_the_same_steps(
    client: httpx.AsyncClient, spans: InMemorySpanExporter, path: str
) -> None:
    """Each step is a span below the request's span, with the same duration."""
    body = QUESTION | {"context": {"overrides": {"index": "docs"}}}
    response = await client.post(path, json=body)
    last = json.loads(response.text.splitlines()[-1])
    reported = {step["name"]: step["duration_ms"] for step in last["context"]["thoughts"][-1]["props"]["steps"]}
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
    assert reported.keys() >= {"retrieve", "first token", "generate"}
    assert seen == pytest.approx(reported, abs=0.002)


@pytest.mark.parametrize("path", ["/chat", "/chat/stream"])
async def test_model_and_detectors_are_called_within_the_generation(
    fakes: Any, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The model and the output detectors are called within the span of the generation."""
    calls: list[tuple[str, str]] = []
    generate, watch = fakes.generator.generate, fakes.guardrails.watch

    async def generate_below(*arguments: Any) -> AsyncGenerator[Batch, None]:
        calls.append(("generator", _current_name()))
        async for batch in generate(*arguments):
            yield batch

    @asynccontextmanager
    async def watch_below(*arguments: Any) -> AsyncIterator[Watch]:
        calls.append(("guardrails", _current_name()))
        async with watch(*arguments) as watched:
            yield watched

    monkeypatch.setattr(type(fakes.generator), "generate", lambda _, *arguments: generate_below(*arguments))
    monkeypatch.setattr(type(fakes.guardrails), "watch", lambda _, *arguments: watch_below(*arguments))
    fakes.policy = Detectors(output=(Detector("words", Action.REDACT),))
    (await client.post(path, json=QUESTION)).raise_for_status()
    assert sorted(calls) == [("generator", "generate"), ("guardrails", "generate")]


def _current_name() -> str:
    span = trace.get_current_span()
    assert isinstance(span, ReadableSpan)
    return span.name


def _total(reported: dict[str, float]) -> float:
    """Return the whole time in milliseconds. The first token is part of the generation."""
    return sum(spent for name, spent in reported.items() if name != "first-token")


def test_steps_are_timed_in_the_order_in_which_they_end() -> None:
    """Steps are recorded in the order of their ends, also failed ones."""
    timeline = Timeline()
    with timeline.step("outer"):
        with timeline.step("inner"):
            time.sleep(0.01)
        with pytest.raises(ValueError, match="x"), timeline.step("failed"):
            raise ValueError("x")
    assert [step.name for step in timeline.steps] == ["inner", "failed", "outer"]
    inner, _, outer = timeline.steps
    assert 10 <= inner.duration_ms <= outer.duration_ms < 5000


def test_a_repeated_step_is_recorded_once() -> None:
    """A repeated step is recorded once with the sum of its times."""
    timeline = Timeline()
    timeline.add("retrieve", 0.001)
    timeline.add("retrieve", 0.0025)
    assert [(step.name, step.duration_ms) for step in timeline.steps] == [("retrieve", 3.5)]


def test_the_inner_steps_of_a_service() -> None:
    """The inner steps of a service belong to the step that called it, and repeated ones are added up."""
    timeline = Timeline()
    timeline.add("retrieve", 0.009)
    timeline.add_inner_steps("retrieve", [("embed", 1.5), ("dense", 2.0)])
    timeline.add_inner_steps("retrieve", [("dense", 0.5)])
    [step] = timeline.steps
    assert [(inner.name, inner.duration_ms) for inner in step.inner] == [("embed", 1.5), ("dense", 2.5)]


def test_each_step_has_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step has its start relative to the answer.

    A step that ran twice has its first start and the sum of its times. A step that was timed elsewhere started
    before it was added.
    """
    now = iter((10.0, 10.1, 10.2, 10.4, 10.5, 10.7, 11.0))
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    timeline = Timeline()
    for _ in range(2):
        with timeline.step("retrieve"):
            pass
    with timeline.step("generate"):
        timeline.add("first token", 0.15)
        monkeypatch.setattr(time, "perf_counter", lambda: 12.0)
    reported = {step.name: (step.start_ms, step.duration_ms) for step in timeline.steps}
    assert reported == {"retrieve": (100.0, 200.0), "first token": (850.0, 150.0), "generate": (700.0, 1300.0)}
