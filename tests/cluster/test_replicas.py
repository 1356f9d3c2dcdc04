"""The pods of a service share the work. A pod that stops gracefully completes its answers."""

import asyncio
import json
import os
from typing import Any

import httpx
import pytest

INDEX = "cluster-tides"
TEXT = "\n\n".join(f"## Buoy {n}\n\nThe lamp of buoy {n} flashes every {n + 2} seconds." for n in range(40))
REDACT = {"output": {"regex": {"regex": ["email"], "action": "redact"}}}
# The log line of a pod for each request, job or call that it answered. Calls are logged at level DEBUG.
SERVED = {"gateway": '"event": "request"', "ingest": '"event": "job done"'}
CALL = '"event": "call answered"'


@pytest.fixture(autouse=True)
async def indexed(asker: Any) -> None:
    """Fill the index that the questions use."""
    job = await asker.upload(INDEX, "buoys.md", TEXT)
    assert await asker.wait_for_end(job) in ("succeeded", "unchanged")


async def ask(asker: Any, number: int) -> str:
    """Ask one streamed question, and return its result: `whole`, `error` (in the stream or as a status) or
    `broken`.
    """
    body = {
        "messages": [{"role": "user", "content": f"How often does the lamp of buoy {number % 40} flash?"}],
        "context": {"overrides": {"index": INDEX, "top": 3, "detectors": REDACT}},
    }
    try:
        async with asker.client() as client, client.stream("POST", "/chat/stream", json=body) as response:
            if response.status_code != httpx.codes.OK:
                return "error"
            lines = [json.loads(line) async for line in response.aiter_lines()]
    except httpx.TransportError:
        return "broken"
    if "error" in lines[-1]:
        return "error"
    return "whole" if "thoughts" in lines[-1]["context"] else "broken"


async def under_load(asker: Any, action: Any, askers: int = 6) -> list[str]:
    """Return the results of all questions before, during and after an action."""
    results: list[str] = []
    is_running = True

    async def ask_repeatedly(first: int) -> None:
        number = first
        while is_running:
            results.append(await ask(asker, number))
            number += askers

    tasks = [asyncio.create_task(ask_repeatedly(first)) for first in range(askers)]
    await asyncio.sleep(1)
    await action()
    await asyncio.sleep(2)
    is_running = False
    await asyncio.gather(*tasks)
    return results


@pytest.mark.parametrize("service", ["gateway", "guardrails", "generator", "ingest", "retriever"])
async def test_every_replica_serves(asker: Any, pods: Any, service: str) -> None:
    """Each pod of a service answers a call."""
    replicas = pods.of(service)
    assert replicas
    if service not in SERVED and pods.variable(replicas[0], "CAUSEWAY_LOG_LEVEL").upper() != "DEBUG":
        pytest.skip(f"{service} logs its calls only with CAUSEWAY_LOG_LEVEL=DEBUG")
    for turn in range(10):
        await asyncio.gather(*(ask(asker, number) for number in range(8)))
        jobs = [await asker.upload(INDEX, f"turn-{turn}-{n}.md", f"# Turn\n\nTide {turn} {n}.") for n in range(4)]
        assert {await asker.wait_for_end(job) for job in jobs} <= {"succeeded", "unchanged"}
        idle = [pod for pod in replicas if SERVED.get(service, CALL) not in pods.log(pod)]
        if not idle:
            return
    assert not idle


@pytest.mark.parametrize("service", ["gateway", "guardrails", "generator"])
async def test_a_pod_that_stops_loses_no_answer(asker: Any, pods: Any, service: str) -> None:
    """While a pod stops, all running and new streams complete."""
    pod_name = pods.of(service)[0]
    results = await under_load(asker, lambda: asyncio.to_thread(pods.stop, pod_name))
    assert len(results) > 6
    assert set(results) == {"whole"}


@pytest.mark.parametrize("service", ["gateway", "guardrails", "generator"])
async def test_an_update_loses_no_answer(asker: Any, pods: Any, service: str) -> None:
    """Each question is answered while all pods of a service are replaced."""
    results = await under_load(asker, lambda: asyncio.to_thread(pods.replace, service))
    assert len(results) > 6
    assert set(results) == {"whole"}


async def test_a_lost_machine_interrupts_only_its_own_answers(asker: Any, pods: Any) -> None:
    """If all pods of a machine are killed, only the answers of these pods are lost. Jobs succeed, and the platform
    soon recovers.
    """
    job = await asker.upload(INDEX, "machine.md", f"{TEXT}\n\nA machine was lost.")
    results = await under_load(asker, lambda: asyncio.to_thread(pods.kill_node))
    assert "whole" in results
    await asker.wait_until_ready()
    assert {await ask(asker, number) for number in range(12)} == {"whole"}
    assert await asker.wait_for_end(job) in ("succeeded", "unchanged")


@pytest.mark.skipif(
    not os.environ.get("CAUSEWAY_E2E_PODS", "").startswith("kubernetes:"),
    reason="a container engine enforces no network policies",
)
@pytest.mark.parametrize(
    ("service", "host", "port", "allowed"),
    [
        ("gateway", "nats", 4222, True),
        ("gateway", "guardrails", 50053, True),
        ("guardrails", "nats", 4222, False),
        ("generator", "retriever", 50051, False),
        ("ingest", "gateway", 8080, False),
    ],
)
def test_the_network_policies_are_enforced(pods: Any, service: str, host: str, port: int, allowed: bool) -> None:
    """A connection that a policy permits succeeds, and any other one fails."""
    assert pods.connects(service, host, port) is allowed


@pytest.mark.parametrize("service", ["gateway", "guardrails", "generator"])
async def test_a_killed_pod_interrupts_only_its_own_answers(asker: Any, pods: Any, service: str) -> None:
    """If a pod is killed, only the clients of this pod get errors, and the platform soon recovers."""
    pod_name = pods.of(service)[0]
    results = await under_load(asker, lambda: asyncio.to_thread(pods.kill, pod_name))
    lost = [each for each in results if each != "whole"]
    assert len(lost) <= 6 * 4, f"of {len(results)} answers {len(lost)} were lost"
    if service != "gateway":
        assert "broken" not in lost
    await asker.wait_until_ready()
    assert {await ask(asker, number) for number in range(12)} == {"whole"}


async def test_a_job_outlives_its_worker(asker: Any, pods: Any) -> None:
    """Accepted jobs succeed although their worker is killed."""
    jobs = [await asker.upload(INDEX, f"long-{n}.md", TEXT * 5 + f"\n\nNumber {n}.\n") for n in range(6)]
    await asyncio.to_thread(pods.kill, pods.of("ingest")[0])
    assert {await asker.wait_for_end(job) for job in jobs} <= {"succeeded", "unchanged"}
