"""The guardrails orchestrator's routes, with a real gateway, guardrails service and generator.

The model server, the detector server and the chunker are stubs. Each case defines their responses, and they record
their requests. All other services are unavailable, because these routes do not use them.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
import yaml
from aiohttp import web
from causeway_testing.guardrails.caikit import Chunkers
from causeway_testing.servers import free_ports

START_SECONDS = 120.0
SSE = "text/event-stream"
PAUSE_SECONDS = 0.3

# The cases of the reference implementation run only if the variable names a file with them.
collect_ignore = [] if os.environ.get("CAUSEWAY_CONFORMANCE_CASES") else ["test_given.py"]


@dataclass(frozen=True)
class ScriptedResponse:
    """A response of a stub. A streamed response pauses at each zero byte."""

    body: bytes
    status: int = 200
    media: str = "application/json"


@dataclass(frozen=True)
class ReceivedRequest:
    """A request that a stub received."""

    path: str
    detector: str
    body: Any


Respond = Callable[[ReceivedRequest], ScriptedResponse]


@dataclass
class Recorder:
    """A stub server that gives scripted responses and records its requests."""

    respond: Respond = lambda _: ScriptedResponse(b"{}", 500)
    requests: list[ReceivedRequest] = field(default_factory=list)
    url: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        if request.method == "GET":
            return web.json_response({"object": "list", "data": []})
        received = ReceivedRequest(request.path, request.headers.get("detector-id", ""), await request.json())
        self.requests.append(received)
        scripted = self.respond(received)
        if b"\0" not in scripted.body:
            return web.Response(
                body=scripted.body, status=scripted.status, headers={"content-type": scripted.media}
            )
        response = web.StreamResponse(status=scripted.status, headers={"content-type": scripted.media})
        await response.prepare(request)
        for step in scripted.body.split(b"\0"):
            await response.write(step)
            await asyncio.sleep(PAUSE_SECONDS)
        return response


@dataclass
class Stack:
    """The processes of Causeway, and the stub servers that they call.

    Attributes:
        http: A client of the gateway.
        model: The model server.
        detectors: The detector server.
        chunkers: The server of chunkers with the reference's protocol.
    """

    http: httpx.Client
    model: Recorder
    detectors: Recorder
    chunkers: Chunkers

    def ask(self, path: str, *, headers: Mapping[str, str] | None = None, content: bytes) -> "Answer":
        """Clear the recorded requests, send a body to the gateway, and return its answer."""
        self.model.requests.clear()
        self.detectors.requests.clear()
        response = self.http.post(path, content=content, headers=dict(headers or {}))
        return Answer(response.status_code, response.headers.get("content-type", ""), response.text)


@dataclass(frozen=True)
class Answer:
    """An answer of the gateway."""

    status: int
    media: str
    text: str

    @property
    def body(self) -> Any:
        """Return the JSON of the answer."""
        return json.loads(self.text)

    @property
    def events(self) -> list[tuple[str, Any]]:
        """Return a stream's events as kind and payload. The last one is the text ``[DONE]``."""
        if not self.media.startswith(SSE):
            return [("", json.loads(line)) for line in self.text.splitlines() if line]
        found = []
        for block in self.text.split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if "data" in lines:
                data = lines["data"]
                found.append((lines.get("event", ""), data if data == "[DONE]" else json.loads(data)))
        return found


@pytest.fixture
def make_response() -> Callable[[str, int, str], ScriptedResponse]:
    """Return a function that returns a stub's response for a body, a status and a media type."""
    return lambda body, status, media: ScriptedResponse(body.encode(), status, media)


StartStack = Callable[..., contextlib.AbstractContextManager[Stack]]


@pytest.fixture(scope="session")
def start_stack(tmp_path_factory: pytest.TempPathFactory) -> StartStack:
    """Return a function that starts a stack with the given detectors, models and remote chunkers."""

    @contextlib.contextmanager
    def start(
        detectors: Mapping[str, Mapping[str, Any]], models: list[str], chunkers: Sequence[str] = ()
    ) -> Iterator[Stack]:
        directory = tmp_path_factory.mktemp("conformance")
        model, detector, chunker = Recorder(), Recorder(), Chunkers()
        with contextlib.ExitStack() as stack:
            stack.enter_context(_serve_stubs(chunker, model, detector))
            detectors_file = {
                "chunkers": {name: {"target": chunker.target, "protocol": "caikit"} for name in chunkers},
                "detectors": {name: {**settings, "url": detector.url} for name, settings in detectors.items()},
            }
            (directory / "detectors.yaml").write_text(yaml.safe_dump(detectors_file))
            profile = {"name": "reference", "mount": "reference", "guardrails_wire": "orchestrator"}
            allowed = {"allow": {"indexes": "any", "models": "any"}}
            (directory / "frontends.yaml").write_text(yaml.safe_dump({"frontends": [profile | allowed]}))
            url = stack.enter_context(_run_services(directory, model, models))
            http = stack.enter_context(httpx.Client(base_url=url, timeout=60))
            yield Stack(http, model, detector, chunker)

    return start


@contextlib.contextmanager
def _serve_stubs(chunkers: Chunkers, *recorders: Recorder) -> Iterator[None]:
    """Run the servers in their own event loop during the block."""
    loop = asyncio.new_event_loop()
    runners: list[web.AppRunner] = []
    chunker_servers: list[grpc.aio.Server] = []

    async def serve(recorder: Recorder) -> None:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", recorder.answer)
        runners.append(runner := web.AppRunner(app))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        recorder.url = f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def serve_chunkers() -> None:
        chunker_servers.append(await chunkers.serve())

    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(serve_chunkers(), loop).result(10)
        for recorder in recorders:
            asyncio.run_coroutine_threadsafe(serve(recorder), loop).result(10)
        yield
    finally:
        for runner in runners:
            asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        for server in chunker_servers:
            asyncio.run_coroutine_threadsafe(server.stop(0), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@contextlib.contextmanager
def _run_services(directory: Path, model: Recorder, models: list[str]) -> Iterator[str]:
    """Run the gateway, the guardrails service and the generator, and yield the gateway's URL."""
    gateway, guardrails, generator, unused = free_ports(4)
    environment = {
        **os.environ,
        "CAUSEWAY_GATEWAY_PORT": str(gateway),
        "CAUSEWAY_GUARDRAILS_PORT": str(guardrails),
        "CAUSEWAY_GENERATOR_PORT": str(generator),
        "CAUSEWAY_GUARDRAILS_TARGET": f"127.0.0.1:{guardrails}",
        "CAUSEWAY_GENERATOR_TARGET": f"127.0.0.1:{generator}",
        "CAUSEWAY_RETRIEVER_TARGET": f"127.0.0.1:{unused}",
        "CAUSEWAY_NATS_URL": f"nats://127.0.0.1:{unused}",
        "CAUSEWAY_FRONTENDS_FILE": str(directory / "frontends.yaml"),
        "CAUSEWAY_GUARDRAILS_DETECTORS_FILE": str(directory / "detectors.yaml"),
        "CAUSEWAY_MODELS_FILE": str(directory / "models.yaml"),
    }
    models_file = {
        "servers": {"recorder": {"kind": "openai", "url": f"{model.url}/v1"}},
        "models": [{"name": name, "deployments": [{"server": "recorder", "model": name}]} for name in models],
        # A failed server of one case must not affect the next case.
        "circuit": {"failures": 1000, "seconds": 1},
        "retries": {"most": 0, "within": 0},
    }
    (directory / "models.yaml").write_text(yaml.safe_dump(models_file))
    running = []
    try:
        for service in ("guardrails", "generator", "gateway"):
            with (directory / f"{service}.log").open("wb") as log:
                command = [sys.executable, "-m", service]
                running.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        url = f"http://127.0.0.1:{gateway}"
        _wait(url, running, directory)
        yield url
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(60)


def _wait(url: str, running: "list[subprocess.Popen[bytes]]", directory: Path) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        ended = [process.args for process in running if process.poll() is not None]
        assert not ended, (ended, [path.read_text()[-2000:] for path in directory.glob("*.log")])
        with contextlib.suppress(httpx.TransportError):
            ready = httpx.get(f"{url}/readyz", params={"verbose": ""}).json().get("services", {})
            if all(ready.get(name, {}).get("status") == "ok" for name in ("guardrails", "generator")):
                return
        time.sleep(0.1)
    raise TimeoutError("the stack did not become ready")
