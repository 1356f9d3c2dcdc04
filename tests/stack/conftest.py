"""A stack of this machine's own, to be broken: processes that can be killed, a model server that records."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from servicekit.testing_model_server import ModelServer

READY_SECONDS = 60.0
DOCUMENT = b"# Tides\n\nHigh water at Kelsay is at six in the morning.\n"
INDEX = "tides"


@dataclass
class Stack:
    """A running stack."""

    data: Path
    process: asyncio.subprocess.Process
    http: httpx.AsyncClient

    def description(self) -> dict[str, Any]:
        """What `causeway up` says of it."""
        found: dict[str, Any] = json.loads((self.data / "stack.json").read_text())
        return found

    def kill(self, service: str, sign: signal.Signals = signal.SIGKILL) -> int:
        """Sends a signal to one of its processes; returns its id."""
        pid: int = self.description()["services"][service]["pid"]
        os.kill(pid, sign)
        return pid

    async def ready(self) -> None:
        """Waits until every service answers."""
        end = time.monotonic() + READY_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(httpx.TransportError):
                if (await self.http.get("/readyz", params={"verbose": ""})).status_code == 200:
                    return
            await asyncio.sleep(0.05)
        raise TimeoutError("the stack did not become ready")

    async def ingest(self, index: str = INDEX, name: str = "tides.md", content: bytes = DOCUMENT) -> dict[str, Any]:
        """Uploads a document and waits for its job's end."""
        response = await self.http.post("/documents", data={"index": index}, files={"file": (name, content)})
        return await self.finished(response.raise_for_status().json()["jobs"][0]["id"])

    async def finished(self, job_id: str) -> dict[str, Any]:
        """The job once it has ended, however often the stack is away meanwhile."""
        end = time.monotonic() + 90
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
        """A request body of the AI chat protocol."""
        return {"messages": text, "context": {"overrides": {"index": index, **overrides}}}


StartStack = Callable[..., AbstractAsyncContextManager[Stack]]


@contextlib.asynccontextmanager
async def start_stack(data: Path, **environment: str) -> AsyncIterator[Stack]:
    """`causeway up` with a data directory; stopped by SIGTERM at the end, and must end well."""
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
    """Starts stacks: a data directory and variables of the environment in, a running stack out."""
    return start_stack


@pytest.fixture
async def model() -> AsyncIterator[ModelServer]:
    """A model server that records what it is asked."""
    async with ModelServer.started(tokens=100, pace=0.02) as server:
        yield server


@pytest.fixture
async def stack(tmp_path: Path, model: ModelServer) -> AsyncIterator[Stack]:
    """A stack whose default model is the recording server, with one document in it."""
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


async def within(seconds: float, awaitable: Awaitable[Any]) -> Any:
    """The result; a failure where it takes longer."""
    return await asyncio.wait_for(awaitable, seconds)
