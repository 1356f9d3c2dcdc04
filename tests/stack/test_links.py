"""Slow, broken and corrupt connections between the processes, and a broker that some processes cannot reach."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from causeway_testing.links import Link

pytestmark = pytest.mark.timeout(600)

SERVICES = ("retriever", "generator", "guardrails")
REDACT = {"output": {"regex": {"regex": ["email"], "action": "redact"}}}
ERROR_WITHIN = 60.0
OUTAGE_SECONDS = 32.0
"""Longer than the time after which NATS delivers the job of a silent worker to another worker."""
FILES = [("file", (f"{n}.md", f"# Berth {n}\n\nBerth {n} is {n + 5} metres deep.\n".encode())) for n in range(60)]


@pytest.fixture
async def links(stack: Any) -> AsyncIterator[dict[str, Link]]:
    """Open a link to each service, and yield the links by service."""
    services = stack.description()["services"]
    async with contextlib.AsyncExitStack() as opened:
        yield {name: await opened.enter_async_context(Link.to(services[name]["socket"])) for name in SERVICES}


async def ask(gateway: Any, at_first: Callable[[], Awaitable[None]] | None = None) -> tuple[int, str]:
    """Send a question with detectors, and return the status and the last line of the streamed answer. Call
    `at_first` after the first text.
    """
    body, line = gateway.question(detectors=REDACT), ""
    async with gateway.http.stream("POST", "/chat/stream", json=body, timeout=2 * ERROR_WITHIN) as response:
        async for line in response.aiter_lines():
            if at_first is not None and json.loads(line).get("delta", {}).get("content"):
                await at_first()
                at_first = None
        return response.status_code, line


async def test_slow_wrong_and_broken_connections(
    stack: Any, links: dict[str, Link], record_property: Callable[[str, object], None]
) -> None:
    """Slow connections only delay the answer. A corrupt or broken connection causes an error in limited time. When
    it works again, questions are answered, and the gateway releases its resources.
    """
    targets = {f"CAUSEWAY_{name.upper()}_TARGET": f"127.0.0.1:{link.port}" for name, link in links.items()}
    async with stack.another_gateway(**targets) as gateway:
        assert '"error"' not in (await ask(gateway))[1]
        before = {"gateway": gateway.resources("gateway")}

        async def wait_for_recovery(fault: str) -> None:
            begin = time.monotonic()
            while (answer := await ask(gateway))[0] != 200 or '"error"' in answer[1]:
                assert time.monotonic() - begin < ERROR_WITHIN, answer
                await asyncio.sleep(0.1)
            record_property(f"seconds until answers after {fault}", round(time.monotonic() - begin, 1))

        for link in links.values():
            link.delay = 0.1
        assert '"error"' not in (await ask(gateway))[1]
        for link in links.values():
            link.delay = 0.0

        for name, link in links.items():
            link.garbled = True
            for _ in range(3):
                begin = time.monotonic()
                status, last = await ask(gateway)
                assert '"error"' in last, (name, status, last)
                assert status in (200, 500, 503), (name, status, last)
                assert time.monotonic() - begin < ERROR_WITHIN
            link.garbled = False
            await wait_for_recovery(f"invalid bytes from the {name}")
        for name, link in links.items():
            status, last = await asyncio.wait_for(ask(gateway, link.cut), ERROR_WITHIN)
            assert status == 200
            # The retriever has already answered.
            assert ('"error"' in last) == (name != "retriever"), (name, last)
            await wait_for_recovery(f"the end of the connection to the {name}")
        await gateway.wait_for_release(before)


async def test_a_gateway_and_a_worker_cut_off_from_nats(
    stack: Any, record_property: Callable[[str, object], None]
) -> None:
    """While a gateway and a worker cannot reach the broker, the gateway answers questions and refuses uploads, and
    another worker completes the jobs. Afterwards each document exists once.
    """
    port = stack.description()["services"]["nats"]["port"]
    async with Link.to(port) as link, contextlib.AsyncExitStack() as others:
        gateway = await others.enter_async_context(
            stack.another_gateway(CAUSEWAY_NATS_URL=stack.nats_url_at("gateway", link.port))
        )
        settings = {"CAUSEWAY_NATS_URL": stack.nats_url_at("ingest", link.port), "CAUSEWAY_INGEST_PORT": "0"}
        worker = await others.enter_async_context(stack.second_process("ingest", **settings))
        await asyncio.sleep(5)
        response = await gateway.http.post("/documents", data={"index": "berths"}, files=FILES)
        jobs = [job["id"] for job in response.raise_for_status().json()["jobs"]]
        await stack.wait_for_job(jobs[3])
        link.stop()
        begin = time.monotonic()
        assert (await gateway.http.post("/chat", json=gateway.question())).status_code == 200
        files = {"file": ("low.md", b"# Low\n\nLow water is at noon.\n")}
        refused = await gateway.http.post("/documents", data={"index": "tides"}, files=files, timeout=ERROR_WITHIN)
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        record_property("seconds until an upload is refused", round(time.monotonic() - begin, 1))
        assert (await gateway.http.post("/chat", json=gateway.question())).status_code == 200
        await asyncio.sleep(max(0.0, begin + OUTAGE_SECONDS - time.monotonic()))
        for job in jobs:
            assert (await stack.wait_for_job(job))["state"] in ("succeeded", "unchanged")
        record_property(
            "seconds until the other worker has stored all documents", round(time.monotonic() - begin, 1)
        )
        link.resume()
        begin = time.monotonic()
        await gateway.wait_until_ready()
        job = await gateway.ingest("tides", "low.md", b"# Low\n\nLow water is at noon.\n")
        assert job["state"] in ("succeeded", "unchanged")
        record_property("seconds until the gateway accepts uploads again", round(time.monotonic() - begin, 1))
        assert worker.returncode is None
        documents = (await stack.http.get("/documents", params={"index": "berths", "limit": 1000})).json()
        names = [each["sourcefile"] for each in documents["documents"]]
        assert sorted(names) == sorted(name for _, (name, _) in FILES)
        tides = (await stack.http.get("/documents", params={"index": "tides"})).json()["documents"]
        assert sorted(each["sourcefile"] for each in tides) == ["low.md", "tides.md"]
        assert (await stack.http.get("/jobs/dead")).json()["jobs"] == []
