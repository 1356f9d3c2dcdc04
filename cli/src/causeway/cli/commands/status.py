"""``causeway status``: the services and their health."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path

import typer
from causeway.cli import health, render, stack_file
from causeway.cli.client import Client
from causeway.cli.options import DEFAULT_DATA_DIR, ApiKey, DataDir, Json, Url, resolve_url
from causeway.cli.reservation import HOST

_GATEWAY = "gateway"

EXAMPLES = (
    "causeway status",
    "causeway status --url http://rag.example.org --json | jq .ready",
)


def status(
    url: Url = None, data_dir: DataDir = DEFAULT_DATA_DIR, api_key: ApiKey = "", *, as_json: Json = False
) -> None:
    """Show the services, their states and their latencies.

    The exit code is 1 if a service is not ready.
    """
    if not asyncio.run(_status(resolve_url(url, data_dir), data_dir, api_key, as_json=as_json)):
        raise typer.Exit(1)


async def _status(url: str, data_dir: Path, api_key: str, *, as_json: bool) -> bool:
    async with Client(url, api_key=api_key) as client:
        await client.connect()
        start = time.perf_counter()
        readiness = await client.readiness()
        latency_ms = (time.perf_counter() - start) * 1000
    local = stack_file.read(data_dir)
    # The file describes the processes of the local stack. The URL may belong to another stack.
    processes = local.get("services", {}) if local.get("url") == url else {}
    services: dict[str, dict[str, object]] = {
        _GATEWAY: {"status": "ok", "detail": "", "latency_ms": round(latency_ms, 1)}
    }
    for service in readiness.services:
        services[service.name] = {
            "status": service.status,
            "detail": service.detail,
            "latency_ms": service.latency_ms,
        }
    for name, process in processes.items():
        if name not in services:
            services[name] = await _probe(_target(process))
        services[name].update(process)
    ready = readiness.ready and all(facts["status"] == "ok" for facts in services.values())
    out = render.console()
    if as_json:
        found = {"url": url, "ready": ready, "services": services}
        render.json_line(out, found)
        return ready
    render.line(out, f"{url} is {'ready' if ready else 'not ready'}", "bold")
    rows = [
        (
            name,
            render.state(str(facts["status"])),
            "" if facts["latency_ms"] is None else f"{facts['latency_ms']} ms",
            str(facts.get("pid") or ""),
            str(facts.get("port") or facts.get("socket") or ""),
            str(facts["detail"]),
        )
        for name, facts in services.items()
    ]
    render.table(out, ("Service", "State", "Latency", "PID", "Port or socket", "Detail"), rows)
    return ready


def _target(process: Mapping[str, object]) -> str:
    """Return the gRPC address of a process of the local stack."""
    if "socket" in process:
        return f"unix:{process['socket']}"
    return f"{HOST}:{process['port']}"


async def _probe(target: str) -> dict[str, object]:
    """Check a local service that the gateway does not report."""
    start = time.perf_counter()
    problem = await health.problem(target)
    latency_ms = round((time.perf_counter() - start) * 1000, 1)
    return {"status": "unavailable" if problem else "ok", "detail": problem or "", "latency_ms": latency_ms}
