"""The health API of the guardrails orchestrator."""

import asyncio
from typing import Any

import httpx
import pytest
from causeway_testing.gateway.answering import FakeGuardrails, FakeProbe
from gateway.domain import DetectorInfo, DetectorKind
from gateway.routes.detector_health import DetectorHealth
from servicekit.deadline import Deadline
from servicekit.errors import Unavailable
from servicekit.principal import Principal


class Guardrails(FakeGuardrails):
    """Guardrails with detectors on other servers."""

    async def detectors(
        self, principal: Principal, deadline: Deadline, *, health: bool = False
    ) -> tuple[DetectorInfo, ...]:
        assert health
        kind = DetectorKind.CONTENTS
        return (
            DetectorInfo("built-in", kind, healthy=True),
            DetectorInfo("ill", kind, remote=True, healthy=False, reason="its server answered with status 500"),
            DetectorInfo("new", kind, remote=True),
            DetectorInfo("well", kind, remote=True, healthy=True),
        )


class UnavailableGuardrails(FakeGuardrails):
    """Guardrails that cannot be reached."""

    async def detectors(self, principal: Principal, deadline: Deadline, *, health: bool = False) -> Any:
        raise Unavailable("The guardrails cannot be reached.")


class CountingGuardrails(Guardrails):
    """Guardrails that count the calls and respond slowly."""

    calls = 0

    async def detectors(self, *args: Any, **more: Any) -> tuple[DetectorInfo, ...]:
        self.calls += 1
        await asyncio.sleep(0.01)
        return await super().detectors(*args, **more)


class Hanging(FakeGuardrails):
    """Guardrails that ignore the deadline."""

    async def detectors(self, principal: Principal, deadline: Deadline, *, health: bool = False) -> Any:
        await asyncio.Event().wait()


def client(guardrails: FakeGuardrails, **more: Any) -> httpx.AsyncClient:
    probes = [FakeProbe("generator"), FakeProbe("nats", "not connected")]
    app = DetectorHealth(guardrails, probes, version="1.2.3", **more)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://health")


async def test_the_states_of_services_and_detectors() -> None:
    """The response has the state of each service from its probe, and of each remote detector."""
    async with client(Guardrails()) as http:
        assert (await http.get("/info")).json() == {
            "services": {
                "generator": {"status": "HEALTHY"},
                "nats": {"status": "UNHEALTHY", "code": 503, "reason": "not connected"},
                "ill": {"status": "UNHEALTHY", "code": 503, "reason": "its server answered with status 500"},
                "new": {"status": "UNKNOWN"},
                "well": {"status": "HEALTHY"},
            }
        }


async def test_the_states_of_services_without_the_guardrails() -> None:
    """The states of the services are returned even if the guardrails cannot be reached."""
    async with client(UnavailableGuardrails()) as http:
        assert set((await http.get("/info")).json()["services"]) == {"generator", "nats"}


async def test_requests_share_a_check() -> None:
    """Requests within a short time share one check, because the route needs no credential."""
    guardrails = CountingGuardrails()
    async with client(guardrails) as http:
        await asyncio.gather(*(http.get("/info") for _ in range(30)))
        assert guardrails.calls == 1


async def test_guardrails_that_do_not_respond_are_left_out() -> None:
    """The states of the services are returned within the time-out even if the guardrails do not respond."""
    async with client(Hanging(), timeout=0.05) as http, asyncio.timeout(60):
        assert set((await http.get("/info")).json()["services"]) == {"generator", "nats"}


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/x", 404), ("POST", "/info", 405)])
async def test_other_paths_and_methods_are_refused(method: str, path: str, status: int) -> None:
    """The health route returns the version. Other paths and methods are refused."""
    async with client(Guardrails()) as http:
        assert (await http.get("/health")).json() == {"causeway": "1.2.3"}
        assert (await http.request(method, path)).json()["code"] == status
