"""Processes that SIGSTOP freezes: their connections stay open, and they send no answer."""

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(600)

ERROR_WITHIN = 33.0
"""Three times the usual duration until an error: 6 s until a silent connection is closed, and 5 s until a new
connection fails.
"""
REDACT = {"output": {"regex": {"regex": ["email"], "action": "redact"}}}
CALLS: dict[str, tuple[str, Any]] = {
    "retriever": ("/retrieve", {"index_name": "tides", "query": "high water at Kelsay"}),
    "generator": ("/v1/chat/completions", {"model": "stub", "messages": [{"role": "user", "content": "Hi"}]}),
    "guardrails": (
        "/api/v2/text/detection/content",
        {"content": "mail ann@example.org", "detectors": {"regex": {"regex": ["email"]}}},
    ),
}
LONG = "\n\n".join(f"## Part {n}\n\n" + f"The lamp of buoy {n} flashes. " * 20 for n in range(60)).encode()


async def test_services_that_freeze(stack: Any, record_property: Callable[[str, object], None]) -> None:
    """A request that needs a frozen service gets an error in limited time, and other requests succeed. When the
    services continue, requests are answered, and the processes release their resources.
    """

    async def status(service: str) -> tuple[int, float]:
        path, body = CALLS[service]
        begin = time.monotonic()
        response = await stack.http.post(path, json=body, timeout=2 * ERROR_WITHIN)
        assert "detail" in response.text or "error" in response.text or response.status_code == 200
        return response.status_code, time.monotonic() - begin

    assert [(await status(service))[0] for service in CALLS] == [200, 200, 200]
    before = {name: stack.resources(name) for name in ("gateway", *CALLS)}
    for service in CALLS:
        stack.kill(service, signal.SIGSTOP)
    responses = asyncio.gather(*(status(service) for service in CALLS for _ in range(5)))
    assert (await stack.http.get("/healthz")).status_code == 200
    for code, seconds in await responses:
        assert code in (503, 504)
        assert seconds < ERROR_WITHIN
        record_property("seconds until the client gets an error", round(seconds, 1))
    for code, _ in await asyncio.gather(*(status(service) for service in CALLS)):
        assert code in (503, 504)
    begin = time.monotonic()
    for service in CALLS:
        stack.kill(service, signal.SIGCONT)
    await stack.wait_until_ready()
    assert [(await status(service))[0] for service in CALLS] == [200, 200, 200]
    record_property("seconds until all services answer", round(time.monotonic() - begin, 1))
    await stack.wait_for_release(before)


@pytest.mark.parametrize("service", ["generator", "guardrails"])
async def test_a_service_that_freezes_in_mid_stream(
    stack: Any, service: str, record_property: Callable[[str, object], None]
) -> None:
    """The stream ends with an error in limited time. When the service continues, the next stream is complete."""

    async def lines(frozen: bool) -> list[Any]:
        found: list[Any] = []
        body = stack.question(detectors=REDACT)
        async with stack.http.stream("POST", "/chat/stream", json=body, timeout=2 * ERROR_WITHIN) as response:
            async for line in response.aiter_lines():
                if frozen and not found:
                    stack.kill(service, signal.SIGSTOP)
                found.append(line)
        return found

    begin = time.monotonic()
    try:
        broken = await lines(frozen=True)
        assert time.monotonic() - begin < ERROR_WITHIN
        record_property("seconds until the client gets an error", round(time.monotonic() - begin, 1))
        assert '"error"' in broken[-1]
        assert "word99" not in "".join(broken)  # the detectors have not cleared it
    finally:
        stack.kill(service, signal.SIGCONT)
    await stack.wait_until_ready()
    assert '"error"' not in (await lines(frozen=False))[-1]


async def test_a_worker_and_a_gateway_that_freeze(stack: Any) -> None:
    """A frozen worker misses its acknowledgement deadline, and its document is still stored exactly once. A stream
    of a frozen gateway continues.
    """
    response = await stack.http.post("/documents", data={"index": "buoys"}, files={"file": ("buoys.md", LONG)})
    [job] = response.raise_for_status().json()["jobs"]
    async with stack.http.stream("GET", f"/jobs/{job['id']}/events") as events:
        async for line in events.aiter_lines():
            if '"indexing"' in line:
                break
    stack.kill("ingest", signal.SIGSTOP)
    count = 0
    async with stack.http.stream("POST", "/chat/stream", json=stack.question()) as streamed:
        async for line in streamed.aiter_lines():
            assert '"error"' not in line
            count += 1
            if count == 3:
                stack.kill("gateway", signal.SIGSTOP)
                await asyncio.sleep(3)
                stack.kill("gateway", signal.SIGCONT)
    assert count > 10
    await asyncio.sleep(32)
    stack.kill("ingest", signal.SIGCONT)
    assert (await stack.wait_for_job(job["id"]))["state"] == "succeeded"
    documents = await stack.http.get("/documents", params={"index": "buoys"})
    assert [each["sourcefile"] for each in documents.json()["documents"]] == ["buoys.md"]
    assert (await stack.http.get("/jobs/dead")).json()["jobs"] == []


async def test_a_broker_that_freezes(stack: Any, record_property: Callable[[str, object], None]) -> None:
    """While the broker is frozen, questions are answered, and uploads and lists of jobs are refused in limited
    time. When the broker continues, uploads succeed, and the processes release their resources.
    """

    async def ask() -> None:
        assert (await stack.http.post("/chat", json=stack.question())).status_code == 200

    await ask()
    before = {name: stack.resources(name) for name in ("gateway", "ingest")}
    stack.kill("nats", signal.SIGSTOP)
    try:
        await ask()
        begin = time.monotonic()
        files = {"file": ("low.md", b"# Low\n\nLow water is at noon.\n")}
        upload, listed = await asyncio.gather(
            stack.http.post("/documents", data={"index": "tides"}, files=files, timeout=2 * ERROR_WITHIN),
            stack.http.get("/jobs", timeout=2 * ERROR_WITHIN),
        )
        assert (upload.status_code, listed.status_code) == (503, 503)
        assert "retry-after" in upload.headers
        assert time.monotonic() - begin < ERROR_WITHIN
        record_property("seconds until the client gets an error", round(time.monotonic() - begin, 1))
        await ask()
    finally:
        stack.kill("nats", signal.SIGCONT)
    begin = time.monotonic()
    await stack.wait_until_ready()
    job = await stack.ingest("tides", "low.md", b"# Low\n\nLow water is at noon.\n")
    assert job["state"] in ("succeeded", "unchanged")
    record_property("seconds until a document is stored", round(time.monotonic() - begin, 1))
    await ask()
    await stack.wait_for_release(before)
