"""The gateway as a separate process."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
from causeway.generator.v1 import generator_pb2_grpc
from gateway.clients.generator import DESCRIPTOR
from servicekit.server import GrpcServer

from causeway_testing.servers import free_ports

_START_SECONDS = 90.0


async def spawn(**settings: object) -> asyncio.subprocess.Process:
    """Start the gateway. By default, no other service and no NATS is running at its addresses."""
    unused_ports = free_ports(4)
    targets = {
        f"{name}_target": f"127.0.0.1:{port}"
        for name, port in zip(("retriever", "generator", "guardrails"), unused_ports, strict=False)
    }
    named = {"nats_url": f"nats://127.0.0.1:{unused_ports[3]}", "log_format": "json", **targets, **settings}
    environment = {f"CAUSEWAY_{name.upper()}": str(value) for name, value in named.items()}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gateway",
        env=os.environ | environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


@contextlib.asynccontextmanager
async def gateway(**settings: object) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """Start a gateway, wait until it listens, yield its process and its port, and kill it at the end."""
    [port] = free_ports(1)
    process = await spawn(gateway_port=port, **settings)
    try:
        await wait_until_ready(port)
        yield process, port
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


@contextlib.asynccontextmanager
async def generator_server(servicer: generator_pb2_grpc.GeneratorServiceServicer) -> AsyncIterator[str]:
    """Serve a generator over gRPC, and yield its address for `CAUSEWAY_GENERATOR_TARGET`."""

    def add(server: Any) -> None:
        generator_pb2_grpc.add_GeneratorServiceServicer_to_server(servicer, server)

    server = GrpcServer("127.0.0.1:0", [(DESCRIPTOR, add)])
    await server.start()
    yield f"127.0.0.1:{server.port}"
    await server.stop(0)


async def wait_until_ready(port: int) -> None:
    """Wait until a gateway answers on a port.

    Raises:
        TimeoutError: The gateway does not answer within 90 s.
    """
    end = time.monotonic() + _START_SECONDS
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        while time.monotonic() < end:
            with contextlib.suppress(httpx.TransportError):
                assert (await client.get("/healthz")).status_code == 200
                return
            await asyncio.sleep(0.05)
    raise TimeoutError("the gateway does not answer")
