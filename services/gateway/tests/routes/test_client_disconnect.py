"""In every protocol, the gateway stops all work for a client at once when the client leaves."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from causeway_testing.gateway.answering import FakeGenerator, FakeGuardrails
from causeway_testing.gateway.retrieval import FakeRetriever
from causeway_testing.servers import eventually
from gateway.dialects.rag_chat.registration import Stages
from gateway.domain import Action, Batch, Delta, Detector, Detectors
from gateway.main import build_app
from gateway.settings import Settings

STOPPED_WITHIN = 0.1
NOISE = 0.4
"""Additional seconds for machines that are busy with other tests."""

FIXED = Stages().single_stage_paths()
CHATS = [
    *((path, {}) for path in FIXED),
    *((path, {"stream": True}) for path, stage in FIXED.items() if stage.name.startswith("2024-01")),
    ("/v1/chat/completions", {"index_name": "docs"}),
    ("/v1/chat/completions", {"index_name": "docs", "stream": True}),
]
OTHER_WORK = ["retrieval", "input detectors", "model, before its first text", "output detectors"]


@dataclass
class Work:
    """The work that hangs, and the times at which it was stopped."""

    begun: asyncio.Event = field(default_factory=asyncio.Event)
    stopped: list[float] = field(default_factory=list)

    @contextlib.asynccontextmanager
    async def hanging(self) -> AsyncIterator[None]:
        """Wait until the task is cancelled, and record the time."""
        try:
            self.begun.set()
            yield
            await asyncio.Event().wait()
        finally:
            self.stopped.append(time.monotonic())


def make_service_hang(work: Work, fakes: Any, what: str) -> None:
    """Make one of the services hang."""

    class Retriever(FakeRetriever):
        async def retrieve(self, *_: Any) -> Any:
            async with work.hanging():
                pass

    class Guardrails(FakeGuardrails):
        async def detect(self, *_: Any, **__: Any) -> Any:
            async with work.hanging():
                pass

        @contextlib.asynccontextmanager
        async def watch(self, *args: Any) -> AsyncIterator[Any]:
            async with super().watch(*args) as watch:
                try:
                    yield watch
                finally:
                    work.stopped.append(time.monotonic())

    class Generator(FakeGenerator):
        async def generate(self, *_: Any) -> AsyncGenerator[Batch, None]:
            if "before" not in what:
                yield [Delta(0, "At ")]
            async with work.hanging():
                pass

    if what == "retrieval":
        fakes.retriever = Retriever(fakes.retriever.indexes)
    elif what == "input detectors":
        fakes.guardrails = Guardrails()
        fakes.policy = Detectors(input=(Detector("words", Action.BLOCK),))
    else:
        fakes.generator = Generator()
    if what == "output detectors":
        fakes.guardrails = Guardrails()
        fakes.policy = Detectors(output=(Detector("words", Action.BLOCK),))


@pytest.mark.parametrize(
    ("path", "more", "what"),
    [
        *((path, more, "model") for path, more in CHATS),
        *((path, more, what) for path, more in CHATS[-2:] for what in OTHER_WORK),
    ],
    ids=lambda value: "".join(value) or "whole",
)
async def test_running_work_is_stopped(
    fakes: Any, serve: Callable[..., int], path: str, more: dict[str, Any], what: str
) -> None:
    """The running search, detectors or model stop at once, in streams and in complete answers."""
    work = Work()
    make_service_hang(work, fakes, what)
    port = serve(build_app(Settings(default_index="docs"), fakes.services()))
    body = json.dumps({"messages": [{"role": "user", "content": "When does the ferry leave?"}]} | more).encode()
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await asyncio.wait_for(work.begun.wait(), 60)
    assert work.stopped == []
    left = time.monotonic()
    writer.close()
    stops = 2 if what == "output detectors" else 1
    await eventually(lambda: len(work.stopped) == stops, what="the end of the work")
    assert max(work.stopped) - left < STOPPED_WITHIN + NOISE
