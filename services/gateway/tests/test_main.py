"""The process: how it starts, refuses to start, and stops."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from causeway.generator.v1 import generator_pb2 as pb
from causeway.generator.v1 import generator_pb2_grpc
from causeway_testing.gateway.process import gateway, generator_server, spawn, wait_until_ready
from causeway_testing.servers import free_ports
from gateway.main import serve
from gateway.server.http_server import listen
from gateway.settings import Settings
from servicekit.errors import InvalidRequest, Unavailable

pytestmark = pytest.mark.slow  # each test starts processes

STREAM = {"stream": True, "model": "m", "messages": []}


class Generator(generator_pb2_grpc.GeneratorServiceServicer):
    """Sends one chunk, waits for `proceed`, and sends another one."""

    def __init__(self) -> None:
        self.proceed = asyncio.Event()

    async def Generate(self, request: Any, context: Any) -> AsyncGenerator[pb.GenerateResponse, None]:  # noqa: N802  # the contract's name
        chunk = pb.GenerateEvent(kind=pb.EVENT_KIND_CHUNK, raw_json=b'{"a":1}')
        yield pb.GenerateResponse(events=[chunk])
        await self.proceed.wait()
        yield pb.GenerateResponse(events=[chunk])


@pytest.fixture
def generator() -> Generator:
    return Generator()  # type: ignore[abstract]  # the other methods are not called


@pytest.fixture
async def target(generator: Generator) -> AsyncIterator[str]:
    async with generator_server(generator) as found:
        yield found


def test_the_start_does_not_load_libraries_that_few_deployments_need() -> None:
    """The program loads the libraries of tokens and the pattern engine only if a setting or a policy needs them.

    The libraries of tokens take a seventh of the gateway's memory.
    """
    tokens = {"jwt", "cryptography", "httpx2"}
    patterns = {"re2", "detection.detectors.patterns.view", "detection.shared"}
    code = "import gateway.main, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (tokens | patterns) & set(done.stdout.split()) == set()


async def test_the_gateway_starts_and_stops_without_services() -> None:
    """Without services and NATS, the process is not ready, refuses requests with 503, and stops normally."""
    async with gateway() as (process, port):
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
            assert (await client.get("/readyz")).status_code == 503
            services = (await client.get("/readyz?verbose")).json()["services"]
            assert {name: state["status"] for name, state in services.items()} == dict.fromkeys(
                ("retriever", "generator", "guardrails", "nats"), "unavailable"
            )
            for path, body in (
                ("/chat", {"messages": "hi"}),
                ("/chat/stream", {"messages": "hi"}),
                ("/v1/chat/completions", STREAM),
            ):
                response = await client.post(path, json=body)
                assert response.status_code == 503
            upload = await client.post("/documents", data={"index": "docs"}, files={"file": ("a.md", b"x")})
            assert upload.status_code == 503
            assert upload.headers["retry-after"]
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_a_used_port_is_reported() -> None:
    """The process exits with code 1 and a line that names the port, without a stack."""
    with listen("127.0.0.1", 0) as occupied:
        port = occupied.getsockname()[1]
        process = await spawn(gateway_port=port)
        out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 1
    assert f"Cannot listen on 127.0.0.1, port {port}" in out.decode()
    assert b"Traceback" not in out


async def test_an_invalid_policy_file_ends_the_start(tmp_path: Path) -> None:
    """The start fails, so that configured detectors are never omitted without notice. No task remains."""
    path = tmp_path / "policy.yaml"
    path.write_text("outputs: []")
    with pytest.raises(InvalidRequest, match="outputs"):
        await serve(Settings(gateway_port=0, policy_file=path), asyncio.Event())
    assert len(asyncio.all_tasks()) == 1


async def test_a_running_answer_is_completed(generator: Generator, target: str) -> None:
    """After SIGTERM, new connections are refused, idle ones are closed, and the running stream is completed."""
    async with gateway(generator_target=target) as (process, port):
        base = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=base, trust_env=False) as client:
            idle, writer = await asyncio.open_connection("127.0.0.1", port)
            async with client.stream("POST", "/v1/chat/completions", json=STREAM) as response:
                pieces = response.aiter_raw()
                assert await anext(pieces) == b'data: {"a":1}\n\n'
                process.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(idle.read(), 60) == b""
                writer.close()
                with pytest.raises(OSError, match=r"refused|Connect call failed"):
                    await asyncio.open_connection("127.0.0.1", port)
                generator.proceed.set()
                rest = b"".join([piece async for piece in pieces])
        assert rest == b'data: {"a":1}\n\ndata: [DONE]\n\n'
        assert await asyncio.wait_for(process.wait(), 60) == 0


async def test_an_answer_beyond_the_grace_is_aborted(target: str) -> None:
    """After the grace period, the connection is closed and the service stops."""
    [port, nats] = free_ports(2)
    settings = Settings(
        gateway_port=port, generator_target=target, nats_url=f"nats://127.0.0.1:{nats}", shutdown_grace=1
    )
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(settings, stop))
    await wait_until_ready(port)
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client,
        client.stream("POST", "/v1/chat/completions", json=STREAM) as response,
    ):
        pieces = response.aiter_raw()
        await anext(pieces)
        stop.set()
        with pytest.raises(httpx.RemoteProtocolError):
            await anext(pieces)
        await asyncio.wait_for(serving, 60)


@pytest.mark.parametrize("host", ["203.0.113.1", "nowhere.invalid"])
def test_a_foreign_address_is_refused(host: str) -> None:
    """The error names the address."""
    with pytest.raises(Unavailable, match=f"Cannot listen on {host}"):
        listen(host, 0)
