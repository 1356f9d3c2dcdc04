import asyncio
import json
import signal
import time
from typing import Any

import httpx
import pytest

REDACT = {"output": {"regex": {"regex": ["email"], "action": "redact"}}}
TOLERATED_SECONDS = 2.0


async def lines_of(stack: Any, body: Any, on_first_text: Any = None) -> tuple[list[dict[str, Any]], bool]:
    """Return the lines of a streamed answer, and whether the connection broke. Call `on_first_text` after the first
    text.
    """
    lines: list[dict[str, Any]] = []
    try:
        async with stack.http.stream("POST", "/chat/stream", json=body) as response:
            if response.status_code != 200:
                return [json.loads(await response.aread())], False
            async for line in response.aiter_lines():
                lines.append(json.loads(line))
                if on_first_text is not None and lines[-1].get("delta", {}).get("content"):
                    on_first_text()
                    on_first_text = None
    except httpx.TransportError:
        return lines, True
    return lines, False


@pytest.mark.parametrize("service", ["generator", "guardrails", "gateway"])
async def test_a_service_killed_in_mid_stream(stack: Any, service: str) -> None:
    """The client gets the error within two seconds. The next question is answered soon."""
    killed: list[float] = []

    def kill() -> None:
        killed.append(time.monotonic())
        stack.kill(service)

    lines, broke = await lines_of(stack, stack.question(detectors=REDACT), kill)
    assert killed
    assert time.monotonic() - killed[0] < TOLERATED_SECONDS
    if service == "gateway":
        assert broke
    else:
        assert "error" in lines[-1]
        assert not broke
    await stack.wait_until_ready()
    lines, broke = await lines_of(stack, stack.question(detectors=REDACT))
    assert not broke
    assert all("error" not in line for line in lines)


@pytest.mark.parametrize("service", ["retriever", "generator", "guardrails"])
async def test_a_service_that_is_dead_when_it_is_needed(stack: Any, service: str) -> None:
    """A request fails within two seconds, or the restarted service answers it. The stack restarts the service."""
    stack.kill(service)
    begin = time.monotonic()
    response = await stack.http.post("/chat", json=stack.question(detectors=REDACT))
    # If the service already starts again when the gateway repeats its call, the call waits for the start.
    assert response.status_code in (200, 503)
    if response.status_code == 503:
        assert time.monotonic() - begin < TOLERATED_SECONDS
        assert "retry-after" in response.headers
        assert response.json()["error"]
    await stack.wait_until_ready()
    assert (await stack.http.post("/chat", json=stack.question())).status_code == 200


async def test_without_nats_questions_are_answered_and_uploads_refused(stack: Any) -> None:
    """While NATS is unavailable, a chat succeeds, and an upload is accepted or gets a 503. When NATS is available
    again, uploads succeed.
    """
    stack.kill("nats")
    assert (await stack.http.post("/chat", json=stack.question())).status_code == 200
    files = {"file": ("more.md", b"# More\n\nLow water is at noon.\n")}
    begin = time.monotonic()
    response = await stack.http.post("/documents", data={"index": "tides"}, files=files, timeout=40)
    assert time.monotonic() - begin < 35
    assert response.status_code in (202, 503)
    await stack.wait_until_ready()
    job = await stack.ingest("tides", "more.md", b"# More\n\nLow water is at noon.\n")
    assert job["state"] in ("succeeded", "unchanged")


@pytest.mark.parametrize("service", ["ingest", "nats", "retriever"])
async def test_a_job_survives_a_kill(stack: Any, service: str) -> None:
    """An accepted document is stored exactly once although a service is killed."""
    text = "\n\n".join(f"## Part {n}\n\nThe lamp of buoy {n} flashes every {n + 2} seconds." for n in range(120))
    response = await stack.http.post(
        "/documents", data={"index": "buoys"}, files={"file": ("buoys.md", text.encode())}
    )
    [job] = response.raise_for_status().json()["jobs"]
    await asyncio.sleep(0.3)
    stack.kill(service)
    finished = await stack.wait_for_job(job["id"])
    assert finished["state"] in ("succeeded", "unchanged"), finished
    await stack.wait_until_ready()
    answer = await stack.http.post(
        "/chat", json=stack.question("How often does the lamp of buoy 17 flash?", "buoys", top=50)
    )
    points = answer.json()["context"]["data_points"]["text"]
    assert len(points) == len(set(points))
    assert any("buoy 17 flashes every 19 seconds" in point for point in points)


@pytest.mark.parametrize("service", ["gateway", "generator", "guardrails"])
async def test_sigterm_lets_running_streams_finish(stack: Any, service: str) -> None:
    """A service that stops after SIGTERM completes its running answers."""
    lines, broke = await lines_of(
        stack, stack.question(detectors=REDACT), lambda: stack.kill(service, signal.SIGTERM)
    )
    assert not broke
    assert "thoughts" in lines[-1]["context"]
    assert sum(bool(line["delta"].get("content")) for line in lines) > 10
    await stack.wait_until_ready()
