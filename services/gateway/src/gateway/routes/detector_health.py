"""Serves the health of services and detectors on a separate port, as the guardrails orchestrator does."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError
from servicekit.principal import LOCAL
from starlette.types import Receive, Scope, Send

from gateway.ports.answering import Guardrails
from gateway.ports.health import Probe
from gateway.routes.health import problem_of
from gateway.server.responses import JSON, respond
from gateway.server.single_flight import SingleFlight

_UNAVAILABLE = 503
_PACKAGE = "causeway"


class DetectorHealth:
    """An ASGI application for ``GET /health`` and ``GET /info``. Their status is always 200.

    ``/health`` reports that the process runs. ``/info`` reports the health of each service and of each remote
    detector.

    Args:
        guardrails: Lists the detectors.
        probes: One probe for each service.
        version: The platform's version.
        timeout: The time limit of each check, in seconds.
    """

    def __init__(
        self,
        guardrails: Guardrails,
        probes: Sequence[Probe],
        *,
        version: str,
        timeout: float = 5.0,
    ) -> None:
        self._guardrails = guardrails
        self._probes = probes
        self._version = version
        self._timeout = timeout
        # Callers without credentials could otherwise cause many checks.
        self._shared_check = SingleFlight(self._services)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI's signature
        """Serve one request."""
        if scope["type"] != "http":
            return
        status, body = 404, {"code": 404, "details": f"The path {scope['path']} does not exist."}
        if scope["path"] in ("/health", "/info") and scope["method"] not in ("GET", "HEAD"):
            status, body = 405, {"code": 405, "details": f"{scope['path']} does not accept {scope['method']}."}
        elif scope["path"] == "/health":
            status, body = 200, {_PACKAGE: self._version}
        elif scope["path"] == "/info":
            status, body = 200, {"services": await self._shared_check()}
        await respond(send, status, JSON, msgspec.json.encode(body))

    async def _services(self) -> dict[str, Any]:
        results = await asyncio.gather(*(self._probe(probe) for probe in self._probes), self._detectors())
        return {name: body for services in results for name, body in services.items()}

    async def _probe(self, probe: Probe) -> dict[str, Any]:
        problem = await problem_of(probe, self._timeout)
        return {probe.name: _health(problem is None, problem or "")}

    async def _detectors(self) -> dict[str, Any]:
        try:
            async with asyncio.timeout(self._timeout):
                known = await self._guardrails.detectors(LOCAL, Deadline.after(self._timeout), health=True)
        except (TimeoutError, CausewayError):
            return {}  # the probe of the guardrails reports the reason
        return {info.detector_id: _health(info.healthy, info.reason) for info in known if info.remote}


def _health(healthy: bool | None, reason: str) -> dict[str, Any]:
    if healthy is None:
        return {"status": "UNKNOWN"}
    if healthy:
        return {"status": "HEALTHY"}
    return {"status": "UNHEALTHY", "code": _UNAVAILABLE, "reason": reason}
