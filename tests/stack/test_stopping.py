"""Services that are stopped while NATS is unavailable end within the time limit with exit code 0."""

import asyncio
import contextlib
import functools
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from causeway_testing.servers import eventually, free_ports
from servicekit.broker import Broker

SERVICES = ("gateway", "generator", "guardrails", "ingest", "retriever")
GRACE = 6.0
# The 20 s are for a running request to NATS, the return of jobs to the queue, and the end of the connection.
ENDS_WITHIN = GRACE + 20.0
TEXT = "\n\n".join(f"## Part {n}\n\nThe lamp of buoy {n} flashes every {n + 2} seconds." for n in range(3000))


class SeparateServices:
    """A gateway and a worker that use their own NATS server, and the other services of a stack.

    Attributes:
        nats: The process of NATS.
        services: The processes of the gateway and the worker.
        http: A client of the gateway.
    """

    def __init__(self, nats: asyncio.subprocess.Process, services: dict[str, Any], http: httpx.AsyncClient) -> None:
        self.nats = nats
        self.services = services
        self.http = http

    async def upload(self, name: str) -> dict[str, Any]:
        """Upload a document that takes some time."""
        files = {"file": (name, f"# {name}\n\n{TEXT}".encode())}
        response = await self.http.post("/documents", data={"index": "buoys"}, files=files)
        job: dict[str, Any] = response.raise_for_status().json()["jobs"][0]
        return job

    async def has_started(self, job: dict[str, Any]) -> bool:
        """Return whether a worker has started a job."""
        state: str = (await self.http.get(f"/jobs/{job['id']}")).raise_for_status().json()["state"]
        return state in ("parsing", "embedding", "indexing")


@pytest.fixture
async def separate_services(stack: Any, tmp_path: Path) -> AsyncIterator[SeparateServices]:
    port, http_port = free_ports(2)
    directory = tmp_path / "nats"
    quiet = asyncio.subprocess.DEVNULL
    nats = await asyncio.create_subprocess_exec(*Broker(directory, port).command(), stdout=quiet, stderr=quiet)
    settings = {"CAUSEWAY_NATS_URL": f"nats://127.0.0.1:{port}", "CAUSEWAY_SHUTDOWN_GRACE": str(GRACE)}
    url = f"http://127.0.0.1:{http_port}"
    try:
        async with (
            stack.second_process("gateway", **settings, CAUSEWAY_GATEWAY_PORT=str(http_port)) as gateway,
            stack.second_process("ingest", **settings, CAUSEWAY_INGEST_PORT="0") as ingest,
            httpx.AsyncClient(base_url=url, timeout=30) as http,
        ):
            end = time.monotonic() + 60
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if (await http.get("/readyz", params={"verbose": ""})).status_code == 200:
                        break
                assert time.monotonic() < end, "the gateway did not become ready"
                await asyncio.sleep(0.1)
            yield SeparateServices(nats, {"gateway": gateway, "ingest": ingest}, http)
    finally:
        with contextlib.suppress(ProcessLookupError):
            nats.kill()
        await nats.wait()


async def stop(process: asyncio.subprocess.Process) -> int | None:
    """Send SIGTERM to a process, and return its exit code, or None if it does not end within the time limit."""
    process.terminate()
    try:
        return await asyncio.wait_for(process.wait(), ENDS_WITHIN)
    except TimeoutError:
        return None


@pytest.mark.parametrize("sign", [signal.SIGSTOP, signal.SIGKILL, signal.SIGTERM], ids=lambda sign: sign.name)
async def test_running_jobs_do_not_delay_the_end_without_nats(
    separate_services: SeparateServices, sign: signal.Signals
) -> None:
    """If NATS is frozen, killed or stopped during jobs, a gateway and a worker that are stopped at the same time
    end within the time limit.
    """
    job = await separate_services.upload("first.md")
    await separate_services.upload("second.md")
    end = time.monotonic() + 90
    while not await separate_services.has_started(job):
        assert time.monotonic() < end, "no worker starts the job"
        await asyncio.sleep(0.02)
    separate_services.nats.send_signal(sign)
    codes = await asyncio.gather(*(stop(process) for process in separate_services.services.values()))
    assert dict(zip(separate_services.services, codes, strict=True)) == {"gateway": 0, "ingest": 0}


async def test_a_stack_ends_although_nats_is_frozen(stack: Any) -> None:
    """Each service that is stopped while NATS is frozen ends within the time limit, and the stack restarts it."""
    stack.kill("nats", signal.SIGSTOP)
    try:
        stopped = {service: stack.kill(service, signal.SIGTERM) for service in SERVICES}
        for service, pid in stopped.items():
            has_ended = functools.partial(_has_ended, pid)
            await eventually(has_ended, within=ENDS_WITHIN + 10, what=f"the end of the {service}")
    finally:
        stack.kill("nats", signal.SIGCONT)
    await stack.wait_until_ready()


def _has_ended(pid: int) -> bool:
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
