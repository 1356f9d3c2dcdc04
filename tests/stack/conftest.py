"""A stack whose processes the tests can kill, and a model server that records its requests."""

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
from causeway_testing.stack import run_stack_async

READY_SECONDS = 120.0
_FINISHED_SECONDS = 180.0
_SPARE_DESCRIPTORS = 8
_MAX_GROWTH_MB = 24.0
_PAGE = os.sysconf("SC_PAGE_SIZE")
DOCUMENT = b"# Tides\n\nHigh water at Kelsay is at six in the morning.\n"
INDEX = "tides"


@dataclass(frozen=True, slots=True)
class Resources:
    """The resident memory in megabytes, the open descriptors and the threads of a process and its children."""

    memory_mb: float
    descriptors: int
    threads: int


def _proc(pid: int) -> Path:
    return Path("/proc") / str(pid)


def _process_tree(pid: int) -> Iterator[int]:
    """Yield the ids of a process and all its descendants."""
    yield pid
    for child in (_proc(pid) / "task" / str(pid) / "children").read_text().split():
        yield from _process_tree(int(child))


@dataclass
class Stack:
    """A running stack."""

    data: Path
    http: httpx.AsyncClient

    def description(self) -> dict[str, Any]:
        """Return the content of stack.json."""
        found: dict[str, Any] = json.loads((self.data / "stack.json").read_text())
        return found

    def pid(self, service: str) -> int:
        """Return the process id of a service."""
        found: int = self.description()["services"][service]["pid"]
        return found

    def kill(self, service: str, sign: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to the process of a service, and return its process id."""
        pid = self.pid(service)
        os.kill(pid, sign)
        return pid

    def resources(self, service: str) -> Resources:
        """Return the current resources of a service's process and its descendants."""
        tree = list(_process_tree(self.pid(service)))
        return Resources(
            sum(int((_proc(each) / "statm").read_text().split()[1]) * _PAGE for each in tree) / 1e6,
            sum(len(list((_proc(each) / "fd").iterdir())) for each in tree),
            sum(len(list((_proc(each) / "task").iterdir())) for each in tree),
        )

    async def wait_for_release(self, before: Mapping[str, Resources]) -> None:
        """Wait until the processes have about the same resources as before.

        Raises:
            TimeoutError: A process still has more descriptors or memory.
        """
        end = time.monotonic() + 90
        while True:
            now = {name: self.resources(name) for name in before}
            grown = [
                name
                for name, old in before.items()
                if now[name].descriptors > old.descriptors + _SPARE_DESCRIPTORS
                or now[name].memory_mb > old.memory_mb + _MAX_GROWTH_MB
            ]
            if not grown:
                return
            if time.monotonic() > end:
                raise TimeoutError(f"{grown} did not release their resources: {dict(before)} became {now}")
            await asyncio.sleep(0.5)

    @contextlib.asynccontextmanager
    async def second_process(
        self, service: str, code: str | None = None, **environment: str
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a second process of a service during the block, and kill it at the end.

        Args:
            service: The service. The second process gets the environment of the running process.
            code: The Python code that the process runs instead of the module of the service.
            environment: Variables that replace those of the running process.
        """
        variables = (_proc(self.pid(service)) / "environ").read_bytes().decode().split("\0")
        settings = dict(each.split("=", 1) for each in variables if each)
        settings.pop("CAUSEWAY_GRPC_SOCKET", None)  # the running process uses this socket
        program = ["-m", service] if code is None else ["-c", code]
        with (self.data / "logs" / f"{service}-second.log").open("ab") as log:
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
        """Run a second gateway with other settings and the same services. Yield a stack that uses this gateway."""
        (port,) = free_ports(1)
        url = f"http://127.0.0.1:{port}"
        async with (
            self.second_process("gateway", CAUSEWAY_GATEWAY_PORT=str(port), **environment) as process,
            httpx.AsyncClient(base_url=url, timeout=60) as http,
        ):
            other = _SecondGateway(self.data, http, process.pid)
            await other.wait_until_ready()
            yield other

    def nats_url_at(self, service: str, port: int) -> str:
        """Return the URL with which a service connects to NATS, with another port."""
        variables = (_proc(self.pid(service)) / "environ").read_bytes().decode()
        url = next(each for each in variables.split("\0") if each.startswith("CAUSEWAY_NATS_URL=")).partition("=")[
            2
        ]
        return f"{url.rpartition(':')[0]}:{port}"

    async def wait_until_ready(self) -> None:
        """Wait until every service is ready."""
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(httpx.TransportError):
                if (await self.http.get("/readyz", params={"verbose": ""})).status_code == 200:
                    return
            await asyncio.sleep(0.05)
        raise TimeoutError("the stack did not become ready")

    async def ingest(self, index: str = INDEX, name: str = "tides.md", content: bytes = DOCUMENT) -> dict[str, Any]:
        """Upload a document, wait for its job, and return it."""
        response = await self.http.post("/documents", data={"index": index}, files={"file": (name, content)})
        return await self.wait_for_job(response.raise_for_status().json()["jobs"][0]["id"])

    async def wait_for_job(self, job_id: str) -> dict[str, Any]:
        """Wait until a job has ended, and return it. The stack may be unavailable in the meantime."""
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
class _SecondGateway(Stack):
    gateway_pid: int

    def pid(self, service: str) -> int:
        return self.gateway_pid if service == "gateway" else super().pid(service)


StartStack = Callable[..., AbstractAsyncContextManager[Stack]]


@contextlib.asynccontextmanager
async def start_stack(data: Path, **environment: str) -> AsyncIterator[Stack]:
    """Run a stack for the block."""
    async with (
        run_stack_async(data, environment) as running,
        httpx.AsyncClient(base_url=running["url"], timeout=30) as http,
    ):
        yield Stack(data, http)


@pytest.fixture(name="start_stack")
def start_stack_fixture() -> StartStack:
    """Return a function that starts a stack with a data directory and environment variables."""
    return start_stack


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    """Start a model server that records its requests."""
    async with ModelServer.started(tokens=100, pace=0.02) as server:
        yield server


@pytest.fixture
async def stack(tmp_path: Path, model: ModelServer) -> AsyncIterator[Stack]:
    """Start a stack with one document. Its default model is on the recording server."""
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
