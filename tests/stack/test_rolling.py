"""All processes are restarted one after another while clients ask questions and upload documents."""

import asyncio
import collections
import contextlib
import json
import signal
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.timeout(900)

ORDER = ("retriever", "generator", "guardrails", "ingest", "nats", "gateway")
REDACT = {"output": {"regex": {"regex": ["email"], "action": "redact"}}}
STREAMS = 4
ANSWERED_WITHIN = 60.0


class Load:
    """Clients that ask questions and upload documents until `stop` is called.

    Attributes:
        outcomes: The number of questions and uploads by their result.
        accepted: The job of each accepted document by the name of the document.
        slowest: The duration of the slowest request in seconds.
    """

    def __init__(self, stack: Any) -> None:
        self._stack = stack
        self._stop = asyncio.Event()
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.accepted: dict[str, str] = {}
        self.slowest = 0.0

    def stop(self) -> None:
        """Stop the clients after their running requests."""
        self._stop.set()

    async def run(self) -> None:
        """Run all clients until `stop` is called."""
        async with httpx.AsyncClient(base_url=self._stack.http.base_url, timeout=2 * ANSWERED_WITHIN) as http:
            await asyncio.gather(self._upload(http), *(self._ask(http) for _ in range(STREAMS)))

    async def _ask(self, http: httpx.AsyncClient) -> None:
        while not self._stop.is_set():
            begin = time.monotonic()
            self.outcomes[await self._question(http)] += 1
            self.slowest = max(self.slowest, time.monotonic() - begin)
            await asyncio.sleep(0.1)

    async def _question(self, http: httpx.AsyncClient) -> str:
        has_text = False
        try:
            async with http.stream("POST", "/chat/stream", json=self._stack.question(detectors=REDACT)) as response:
                if response.status_code != 200:
                    await response.aread()
                    return f"refused: {response.status_code}"
                async for text in response.aiter_lines():
                    line = json.loads(text)
                    if "error" in line:
                        return "broken" if has_text else "refused in the stream"
                    has_text = has_text or bool(line.get("delta", {}).get("content"))
        except httpx.TransportError:
            return "broken" if has_text else "no connection"
        return "whole" if has_text else "empty"

    async def _upload(self, http: httpx.AsyncClient) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            name = f"{number}.md"
            files = {"file": (name, f"# Berth {number}\n\nIt is {number + 5} metres deep.\n".encode())}
            begin = time.monotonic()
            with contextlib.suppress(httpx.TransportError):
                response = await http.post("/documents", data={"index": "berths"}, files=files)
                self.outcomes[f"upload: {response.status_code}"] += 1
                if response.status_code == 202:
                    self.accepted[name] = response.json()["jobs"][0]["id"]
            self.slowest = max(self.slowest, time.monotonic() - begin)
            await asyncio.sleep(0.2)


async def test_everything_is_restarted_under_load(
    stack: Any, record_property: Callable[[str, object], None]
) -> None:
    """Running answers complete. During a restart, new requests succeed or get a 503, or no connection if the
    gateway restarts. Every accepted document exists once.
    """
    load = Load(stack)
    running = asyncio.create_task(load.run())
    for service in ORDER:
        await asyncio.sleep(2)
        begin = time.monotonic()
        old = stack.kill(service, signal.SIGTERM)
        while stack.description()["services"][service]["pid"] in (old, None):
            assert time.monotonic() < begin + 60, service
            await asyncio.sleep(0.05)
        await stack.wait_until_ready()
        record_property(f"seconds until the {service} is ready again", round(time.monotonic() - begin, 1))
    await asyncio.sleep(2)
    load.stop()
    await running
    record_property("outcomes", dict(load.outcomes))
    assert set(load.outcomes) <= {
        "whole",
        "refused: 503",
        "refused in the stream",
        "no connection",
        "upload: 202",
        "upload: 503",
    }, load.outcomes
    assert load.outcomes["whole"] > 2 * len(ORDER)
    assert load.slowest < ANSWERED_WITHIN
    for job in load.accepted.values():
        assert (await stack.wait_for_job(job))["state"] in ("succeeded", "unchanged")
    documents = (await stack.http.get("/documents", params={"index": "berths", "limit": 1000})).json()["documents"]
    names = [each["sourcefile"] for each in documents]
    assert len(names) == len(set(names))
    assert set(load.accepted) <= set(names)
    assert (await stack.http.get("/jobs/dead")).json()["jobs"] == []
