"""A stack of the tests' own, whose processes can be killed, with a recording model server."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from causeway_testing.model_server import ModelServer
from causeway_testing.servers import free_ports

READY_SECONDS = 120.0
_FINISHED_SECONDS = 180.0
_SPARE_DESCRIPTORS = 8
_PAGE = os.sysconf("SC_PAGE_SIZE")
DOCUMENT = b"# Tides\n\nHigh water at Kelsay is at six in the morning.\n"
INDEX = "tides"


@dataclass(frozen=True, slots=True)
class Holding:
    """The resident memory in megabytes, the open descriptors and the threads of a process and its children."""

    memory_mb: float
    descriptors: int
    threads: int


def _of(pid: int) -> Path:
    return Path("/proc") / str(pid)


def _family(pid: int) -> Iterator[int]:
    yield pid
    for child in (_of(pid) / "task" / str(pid) / "children").read_text().split():
        yield from _family(int(child))


@dataclass
class Stack:
    """A running stack."""

    data: Path
    process: asyncio.subprocess.Process
    http: httpx.AsyncClient

    def description(self) -> dict[str, Any]:
        """Return the content of the stack file."""
        found: dict[str, Any] = json.loads((self.data / "stack.json").read_text())
        return found

    def pid(self, service: str) -> int:
        """Return the id of a running process."""
        found: int = self.description()["services"][service]["pid"]
        return found

    def kill(self, service: str, sign: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to a process, and return its id."""
        pid = self.pid(service)
        os.kill(pid, sign)
        return pid

    def holding(self, service: str) -> Holding:
        """Return what a process and its children hold now."""
        family = list(_family(self.pid(service)))
        return Holding(
            sum(int((_of(each) / "statm").read_text().split()[1]) * _PAGE for each in family) / 1e6,
            sum(len(list((_of(each) / "fd").iterdir())) for each in family),
            sum(len(list((_of(each) / "task").iterdir())) for each in family),
        )

    async def settled(self, before: Mapping[str, Holding], growth_mb: float = 24.0) -> None:
        """Wait until the processes hold about as much as before.

        Raises:
            TimeoutError: A process keeps more descriptors or memory.
        """
        end = time.monotonic() + 90
        while True:
            now = {name: self.holding(name) for name in before}
            grown = [
                name
                for name, held in before.items()
                if now[name].descriptors > held.descriptors + _SPARE_DESCRIPTORS
                or now[name].memory_mb > held.memory_mb + growth_mb
            ]
            if not grown:
                return
            if time.monotonic() > end:
                raise TimeoutError(f"{grown}: {dict(before)} became {now}")
            await asyncio.sleep(0.5)

    @contextlib.asynccontextmanager
    async def beside(
        self, service: str, code: str | None = None, **environment: str
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run another process of a service with the settings of the running one, except for these. Kill it at the
        end.

        ``code`` runs instead of the service's own module.
        """
        own = (_of(self.pid(service)) / "environ").read_bytes().decode().split("\0")
        settings = dict(each.split("=", 1) for each in own if each)
        settings.pop("CAUSEWAY_GRPC_SOCKET", None)  # the socket of the running one
        program = ["-m", service] if code is None else ["-c", code]
        with (self.data / "logs" / f"{service}-beside.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", *program, env=settings | environment, stdout=log, stderr=log
            )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    @contextlib.asynccontextmanager
    async def another_gateway(self, **environment: str) -> AsyncIterator["Stack"]:
        """Run a second gateway to the same services with other settings. Yield a stack with this gateway."""
        (port,) = free_ports(1)
        url = f"http://127.0.0.1:{port}"
        async with (
            self.beside("gateway", CAUSEWAY_GATEWAY_PORT=str(port), **environment) as process,
            httpx.AsyncClient(base_url=url, timeout=60) as http,
        ):
            other = _Beside(self.data, self.process, http, process.pid)
            await other.ready()
            yield other

    def way(self, service: str, port: int) -> str:
        """Return the broker's URL with a service's login and another port."""
        own = (_of(self.pid(service)) / "environ").read_bytes().decode()
        url = next(each for each in own.split("\0") if each.startswith("CAUSEWAY_NATS_URL=")).partition("=")[2]
        return f"{url.rpartition(':')[0]}:{port}"

    async def ready(self) -> None:
        """Wait until every service answers."""
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(httpx.TransportError):
                if (await self.http.get("/readyz", params={"verbose": ""})).status_code == 200:
                    return
            await asyncio.sleep(0.05)
        raise TimeoutError("the stack did not become ready")

    async def ingest(self, index: str = INDEX, name: str = "tides.md", content: bytes = DOCUMENT) -> dict[str, Any]:
        """Upload a document, and wait for its job."""
        response = await self.http.post("/documents", data={"index": index}, files={"file": (name, content)})
        return await self.finished(response.raise_for_status().json()["jobs"][0]["id"])

    async def finished(self, job_id: str) -> dict[str, Any]:
        """Wait until the job has ended, also while the stack is unavailable, and return it."""
        end = time.monotonic() + _FINISHED_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(httpx.TransportError):
                response = await self.http.get(f"/jobs/{job_id}")
                if response.status_code == 200:
                    job: dict[str, Any] = response.json()
                    if job["state"] in ("succeeded", "unchanged", "failed"):
                        return job
            await asyncio.sleep(0.05)
        raise TimeoutError(f"job {job_id} did not end")

    def question(self, text: str = "When is high water at Kelsay?", index: str = INDEX, **overrides: Any) -> Any:
        """Return a request body of the AI chat protocol."""
        return {"messages": text, "context": {"overrides": {"index": index, **overrides}}}


@dataclass
class _Beside(Stack):
    gateway: int

    def pid(self, service: str) -> int:
        return self.gateway if service == "gateway" else super().pid(service)


StartStack = Callable[..., AbstractAsyncContextManager[Stack]]


@contextlib.asynccontextmanager
async def start_stack(data: Path, **environment: str) -> AsyncIterator[Stack]:
    """Run `causeway up` with a data directory. Stop it with SIGTERM at the end, and check its exit code."""
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("causeway")),
        "up",
        "--port",
        "0",
        "--data-dir",
        str(data),
        env={**os.environ, **environment},
    )
    try:
        end = time.monotonic() + READY_SECONDS
        while not (data / "stack.json").exists():
            assert process.returncode is None, f"causeway up ended with {process.returncode}"
            assert time.monotonic() < end, "the stack was not ready in time"
            await asyncio.sleep(0.05)
        url = json.loads((data / "stack.json").read_text())["url"]
        async with httpx.AsyncClient(base_url=url, timeout=30) as http:
            yield Stack(data, process, http)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(process.wait(), 60)
    assert code == 0


@pytest.fixture(name="start_stack")
def start_stack_fixture() -> StartStack:
    """Give a function that starts a stack with a data directory and variables."""
    return start_stack


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    """Start a recording model server."""
    async with ModelServer.started(tokens=100, pace=0.02) as server:
        yield server


@pytest.fixture
async def stack(tmp_path: Path, model: ModelServer) -> AsyncIterator[Stack]:
    """Start a stack with one document, whose default model is the recording server."""
    environment = {
        "CAUSEWAY_OPENAI_BASE_URL": model.url,
        "CAUSEWAY_OPENAI_MODELS": "stub",
        "CAUSEWAY_MODEL": "stub",
        "CAUSEWAY_SHUTDOWN_GRACE": "10",
    }
    async with start_stack(tmp_path / "data", **environment) as running:
        job = await running.ingest()
        assert job["state"] == "succeeded", job
        yield running
