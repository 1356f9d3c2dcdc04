"""A long run with all kinds of requests, to find leaks and errors.

CAUSEWAY_SOAK_REQUESTS is the number of requests (10,000). The first third of them is the warm-up.
"""

import asyncio
import collections
import json
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from causeway_testing.model_server import ModelServer

StartStack = Callable[..., AbstractAsyncContextManager[Any]]

REQUESTS = int(os.environ.get("CAUSEWAY_SOAK_REQUESTS", "10000"))
AT_ONCE = 16
DISCONNECT_SHARE = 0.15
"""The share of requests whose client disconnects before the end."""
STUCK_SECONDS = 30.0
MAX_GROWTH = 1.10
SLACK_MB = 8.0
"""Growth that is not a leak: the memory of allocators varies by this much."""

INDEX = "soak"
QUESTION = "When is high water at Kelsay?"
TURN = {"messages": [{"role": "user", "content": QUESTION}], "context": {"overrides": {"index": INDEX}}}
REDACTED = TURN | {
    "context": {
        "overrides": {"index": INDEX, "detectors": {"output": {"regex": {"regex": ["email"], "action": "redact"}}}}
    }
}
OPENAI = {"model": "stub", "index_name": INDEX, "messages": TURN["messages"]}


@dataclass(frozen=True, slots=True)
class Call:
    """A request of a client, with the expected status and end of its answer."""

    method: str
    path: str
    body: str = ""
    status: int = 200
    end: bytes = b""


CALLS: dict[Call, int] = {}
"""The requests of the clients, and their weights."""


def add_call(
    weight: int, path: str, body: Any = None, *, method: str = "POST", status: int = 200, end: bytes = b""
) -> None:
    CALLS[Call(method, path, "" if body is None else json.dumps(body), status, end)] = weight


DONE = b"data: [DONE]\n\n"
LINE = b"}\n"
add_call(5, "/2024-01/chat", TURN)
add_call(5, "/2024-01/chat", TURN | {"stream": True}, end=LINE)
add_call(3, "/2024-01/ask", TURN)
add_call(4, "/2024-01-28/chat", TURN)
add_call(4, "/2024-01-28/chat", TURN | {"stream": True}, end=LINE)
add_call(6, "/2024-04/chat", TURN)
add_call(8, "/2024-04/chat/stream", TURN, end=LINE)
add_call(6, "/2024-04/chat/stream", REDACTED, end=LINE)
add_call(4, "/2024-05-29/chat", TURN)
add_call(5, "/2024-05-29/chat/stream", TURN, end=LINE)
add_call(4, "/2026-04-10/chat", TURN)
add_call(6, "/2026-04-10/chat/stream", TURN, end=LINE)
add_call(6, "/v1/chat/completions", OPENAI)
add_call(9, "/v1/chat/completions", OPENAI | {"stream": True}, end=DONE)
add_call(4, "/v1/chat/completions", {"model": "stub", "messages": TURN["messages"]})
add_call(5, "/v1/chat/completions", {"model": "stub", "messages": TURN["messages"], "stream": True}, end=DONE)
add_call(6, "/retrieve", {"index_name": INDEX, "query": QUESTION})
add_call(2, f"/indexes/{INDEX}/documents", method="GET")
add_call(2, "/v1/models", method="GET")
add_call(2, "/indexes", method="GET")
add_call(2, "/index", {"index_name": "soak-written", "documents": [{"text": "Low water is at noon. #"}]})
add_call(2, "/2024-04/chat", {"messages": 7}, status=400)


@pytest.fixture
async def stack(tmp_path: Path, start_stack: StartStack) -> AsyncIterator[Any]:
    """Start a stack with one document, and a model server whose answers have eight words."""
    async with ModelServer.started(tokens=8, pace=0.002) as model:
        environment = {
            "CAUSEWAY_OPENAI_BASE_URL": model.url,
            "CAUSEWAY_OPENAI_MODELS": "stub",
            "CAUSEWAY_MODEL": "stub",
            "CAUSEWAY_LOG_LEVEL": "WARNING",
        }
        async with start_stack(tmp_path / "data", **environment) as running:
            assert (await running.ingest(INDEX))["state"] == "succeeded"
            yield running


class Client:
    """Sends random requests, and records their results."""

    def __init__(self, url: str, seed: int) -> None:
        self._url = url
        self._random = random.Random(seed)
        self._count = 0
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.errors: list[str] = []

    async def send_request(self, http: aiohttp.ClientSession) -> None:
        """Send one request. A share of the requests is cancelled after a random time."""
        self._count += 1
        [call] = self._random.choices(list(CALLS), list(CALLS.values()))
        body = call.body.replace("#", f"#{self._count % 200}") or None
        cancel_after = self._random.uniform(0, 0.1) if self._random.random() < DISCONNECT_SHARE else None
        try:
            async with (
                asyncio.timeout(cancel_after or STUCK_SECONDS),
                http.request(
                    call.method, self._url + call.path, data=body, headers={"content-type": "application/json"}
                ) as response,
            ):
                answer = await response.read()
        except TimeoutError:
            self.outcomes["cancelled"] += 1
            if cancel_after is None:
                self.errors.append(f"stuck: {call.path}")
        except aiohttp.ClientError as error:
            self.errors.append(f"{type(error).__name__}: {call.path}")
        else:
            self.outcomes[str(response.status)] += 1
            if response.status != call.status or b"event: error" in answer or not answer.endswith(call.end):
                self.errors.append(f"{call.method} {call.path}: {response.status} {answer[-300:]!r}")


async def idle_resources(stack: Any) -> dict[str, Any]:
    """Wait until the stack is idle, and return the resources of each process."""
    await asyncio.sleep(3)
    return {name: stack.resources(name) for name in stack.description()["services"]}


async def send_requests(client: Client, count: int) -> None:
    """Send a number of requests, at most `AT_ONCE` at the same time."""
    remaining = iter(range(count))
    begin = time.monotonic()

    async def work(http: aiohttp.ClientSession) -> None:
        for number in remaining:
            await client.send_request(http)
            if number and number % 1000 == 0:
                print(f"  {number} requests, {number / (time.monotonic() - begin):.0f}/s", flush=True)  # noqa: T201  # progress

    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(work(http))


@pytest.mark.timeout(3000)
async def test_ten_thousand_requests(stack: Any) -> None:
    """The memory of no process grows by more than a tenth, no request hangs, and only invalid requests get
    errors.
    """
    client = Client(str(stack.http.base_url).rstrip("/"), seed=1)
    await send_requests(client, REQUESTS // 3)
    before = await idle_resources(stack)
    await send_requests(client, REQUESTS - REQUESTS // 3)
    after = await idle_resources(stack)
    print(f"\n{'':12}{'MB before':>10}{'after':>8}{'files':>7}{'after':>7}{'threads':>9}{'after':>7}")  # noqa: T201  # the table
    for name in sorted(before):
        old, new = before[name], after[name]
        print(  # noqa: T201  # the table
            f"{name:12}{old.memory_mb:10.1f}{new.memory_mb:8.1f}{old.descriptors:7}{new.descriptors:7}"
            f"{old.threads:9}{new.threads:7}"
        )
    print(dict(client.outcomes))  # noqa: T201  # the table
    assert not client.errors, client.errors[:20]
    assert client.outcomes["cancelled"] > REQUESTS * DISCONNECT_SHARE / 20
    for name in before:
        assert after[name].memory_mb < before[name].memory_mb * MAX_GROWTH + SLACK_MB, name
        assert after[name].descriptors <= before[name].descriptors + 8, name
        assert after[name].threads <= before[name].threads + 4, name
    running = (await stack.http.get("/metrics")).text
    assert "num_requests_running 0.0" in running
