"""The guardrails orchestrator's health API."""

from typing import Any

import httpx
import pytest
from gateway.domain import DetectorInfo, DetectorKind
from gateway.fakes import FakeGuardrails, FakeProbe
from gateway.routes.detector_health import DetectorHealth
from servicekit.deadline import Deadline
from servicekit.errors import Unavailable
from servicekit.principal import Principal


class Guardrails(FakeGuardrails):
    """With detectors on other servers."""

    async def detectors(
        self, principal: Principal, deadline: Deadline, *, health: bool = False
    ) -> tuple[DetectorInfo, ...]:
        assert health
        kind = DetectorKind.CONTENTS
        return (
            DetectorInfo("built-in", kind, healthy=True),
            DetectorInfo("ill", kind, remote=True, healthy=False, reason="its server says 500"),
            DetectorInfo("new", kind, remote=True),
            DetectorInfo("well", kind, remote=True, healthy=True),
        )


class Away(FakeGuardrails):
    """Cannot be reached."""

    async def detectors(self, principal: Principal, deadline: Deadline, *, health: bool = False) -> Any:
        raise Unavailable("away")


def client(guardrails: FakeGuardrails) -> httpx.AsyncClient:
    probes = [FakeProbe("generator"), FakeProbe("nats", "not connected")]
    app = DetectorHealth(guardrails, probes, version="1.2.3")
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://health")


async def test_how_everything_is() -> None:
    """Services by their probes, detectors of other servers by what the guardrails say of them."""
    async with client(Guardrails()) as http:
        assert (await http.get("/info")).json() == {
            "services": {
                "generator": {"status": "HEALTHY"},
                "nats": {"status": "UNHEALTHY", "code": 503, "reason": "not connected"},
                "ill": {"status": "UNHEALTHY", "code": 503, "reason": "its server says 500"},
                "new": {"status": "UNKNOWN"},
                "well": {"status": "HEALTHY"},
            }
        }


async def test_without_guardrails_the_services_are_told() -> None:
    """Their own probe says what is wrong."""
    async with client(Away()) as http:
        assert set((await http.get("/info")).json()["services"]) == {"generator", "nats"}


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/x", 404), ("POST", "/info", 405)])
async def test_nothing_else_is_there(method: str, path: str, status: int) -> None:
    """The process lives, whatever else is asked."""
    async with client(Guardrails()) as http:
        assert (await http.get("/health")).json() == {"causeway": "1.2.3"}
        assert (await http.request(method, path)).json()["code"] == status
