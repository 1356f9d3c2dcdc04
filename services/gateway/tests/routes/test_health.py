import asyncio
from typing import Any

import httpx
import pytest
from causeway_testing.gateway.answering import FakeProbe
from fastapi import FastAPI
from gateway.routes import health
from servicekit.deadline import Deadline
from servicekit.errors import DeadlineExceeded


async def test_the_liveness_probe_ignores_other_services(client: httpx.AsyncClient, fakes: Any) -> None:
    """The liveness probe gets the status 200 even if a service cannot be reached."""
    fakes.probes[0].problem = "gone"
    response = await client.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})


async def test_a_ready_gateway_stays_ready(client: httpx.AsyncClient, fakes: Any) -> None:
    """The gateway becomes ready when all services respond, and stays ready from then on."""
    fakes.probes[0].problem = "gone"
    response = await client.get("/readyz")
    assert (response.status_code, response.json()) == (503, {"status": "not ready"})
    fakes.probes[0].problem = None
    assert (await client.get("/readyz")).status_code == 200
    fakes.probes[0].problem = "gone"
    response = await client.get("/readyz")
    assert (response.status_code, response.json()) == (200, {"status": "ready"})


async def test_all_services_must_respond_at_the_same_time(client: httpx.AsyncClient, fakes: Any) -> None:
    """The gateway is not ready until all services respond at the same time."""
    for unavailable in fakes.probes:
        for probe in fakes.probes:
            probe.problem = "gone" if probe is unavailable else None
        assert (await client.get("/readyz")).status_code == 503


async def test_the_verbose_response_has_the_current_states(client: httpx.AsyncClient, fakes: Any) -> None:
    """The verbose response has the current state and the latency of each service."""
    response = await client.get("/readyz?verbose")
    assert response.status_code == 200
    assert response.json()["status"] == "ready"
    services = response.json()["services"]
    assert all(state.pop("latency_ms") >= 0 for state in services.values())
    assert services == {name: {"status": "ok", "detail": ""} for name in ("retriever", "nats")}
    fakes.probes[1].problem = "not connected"
    response = await client.get("/readyz?verbose")
    assert response.status_code == 503
    assert response.json()["status"] == "not ready"
    assert response.json()["services"]["nats"]["status"] == "unavailable"
    assert response.json()["services"]["nats"]["detail"] == "not connected"


@pytest.mark.parametrize("ignores_deadline", [True, False])
async def test_a_probe_that_hangs_is_reported(ignores_deadline: bool) -> None:
    """A probe that hangs is reported after the time-out, and does not delay the other probes."""

    class Hanging(FakeProbe):
        async def check(self, deadline: Deadline) -> str | None:
            if ignores_deadline:
                await asyncio.Event().wait()
            await asyncio.sleep(deadline.remaining())
            raise DeadlineExceeded("late")

    app = FastAPI()
    app.include_router(health.router([Hanging("slow"), Hanging("slower"), FakeProbe("nats")], timeout=0.2))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://g") as http, asyncio.timeout(60):
        response = await http.get("/readyz?verbose=1")
    assert response.json()["services"]["slow"]["detail"] == "no response within 0.2 s"
    assert response.json()["services"]["nats"]["status"] == "ok"


async def test_requests_share_a_check() -> None:
    """Concurrent requests share one check, because the route needs no credential."""

    class CountingProbe(FakeProbe):
        calls = 0

        async def check(self, deadline: Deadline) -> str | None:
            self.calls += 1
            await asyncio.sleep(0.05)
            return None

    probe, app = CountingProbe("nats"), FastAPI()
    app.include_router(health.router([probe]))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://g") as http:
        await asyncio.gather(*(http.get("/readyz?verbose") for _ in range(30)))
    assert probe.calls == 1


async def test_health_in_ragengines_format(client: httpx.AsyncClient) -> None:
    """The health route responds in RAGEngine's format."""
    response = await client.get("/health")
    assert (response.status_code, response.json()) == (200, {"status": "Healthy", "detail": None})
