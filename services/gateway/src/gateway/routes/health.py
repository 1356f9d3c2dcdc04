"""Routes that report the liveness and the readiness of the gateway."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import APIRouter, Response
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError

from gateway.ports.health import Probe
from gateway.server.single_flight import SingleFlight


def router(probes: Sequence[Probe], *, timeout: float = 1.0) -> APIRouter:
    """Return ``GET /health``, ``GET /healthz`` and ``GET /readyz``.

    Args:
        probes: One probe for each dependency.
        timeout: The time limit of each check, in seconds.
    """
    routes = APIRouter(tags=["health"])
    # A gateway stays ready after its start, even if a dependency fails. If a failure made all gateways unready,
    # clients would get refused connections instead of a 503 with a reason.
    started = False

    async def states() -> list[dict[str, Any]]:
        return await asyncio.gather(*(_check(probe, timeout) for probe in probes))

    # Concurrent requests share one check of each dependency, because callers need no credentials.
    shared_check = SingleFlight(states, reuse_seconds=0.0)

    @routes.get("/health", summary="Liveness (RAGEngine's format)")
    async def health() -> dict[str, str | None]:
        """Answer 200."""
        return {"status": "Healthy", "detail": None}

    @routes.get("/healthz", summary="Liveness")
    async def healthz() -> dict[str, str]:
        """Answer 200."""
        return {"status": "ok"}

    @routes.get(
        "/readyz",
        summary="Readiness",
        responses={
            503: {"description": "Not yet", "content": {"application/json": {"schema": {"type": "object"}}}}
        },
    )
    async def readyz(verbose: str | None = None) -> Response:
        """Return 200 after all dependencies have been available at the same time. ``?verbose`` checks them now."""
        nonlocal started
        if started and verbose is None:
            return _response(True, {})
        found = await shared_check()
        services = {probe.name: state for probe, state in zip(probes, found, strict=True)}
        is_ready = all(state["status"] == "ok" for state in found)
        started = started or is_ready
        if verbose is None:
            return _response(started, {})
        return _response(is_ready, {"services": services})

    return routes


def _response(ready: bool, more: dict[str, Any]) -> Response:
    body = {"status": "ready" if ready else "not ready"} | more
    return Response(msgspec.json.encode(body), 200 if ready else 503, media_type="application/json")


async def _check(probe: Probe, seconds: float) -> dict[str, Any]:
    begin = time.perf_counter()
    problem = await problem_of(probe, seconds)
    milliseconds = round((time.perf_counter() - begin) * 1000, 1)
    return {"status": "unavailable" if problem else "ok", "detail": problem or "", "latency_ms": milliseconds}


async def problem_of(probe: Probe, seconds: float) -> str | None:
    """Return why a dependency is unavailable, or None if it is available.

    Args:
        probe: The probe of the dependency.
        seconds: The time limit of the check.
    """
    try:
        async with asyncio.timeout(seconds):
            return await probe.check(Deadline.after(seconds))
    except (TimeoutError, CausewayError):
        return f"no response within {seconds:g} s"
