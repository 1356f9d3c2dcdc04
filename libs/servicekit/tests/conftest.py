"""Fixtures: functions served as gRPC methods over a real server and channel, NATS, and the log of a test."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import structlog
from causeway.generator.v1 import generator_pb2, generator_pb2_grpc
from causeway.guardrails.v1 import guardrails_pb2, guardrails_pb2_grpc
from causeway.retriever.v1 import retriever_pb2, retriever_pb2_grpc
from causeway_testing.servers import grpc_service, nats_server
from nats.aio.client import Client
from servicekit import nats
from servicekit.nats import IngestTransport


class Served:
    """Serves a function as a method of a contract, and returns the stub's method, for each kind of method."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def unary(self, handler: Callable[[Any, Any], Awaitable[Any]]) -> Any:
        return await self._serve(guardrails_pb2, guardrails_pb2_grpc, "GuardrailsService", "DetectText", handler)

    async def server_stream(self, handler: Callable[[Any, Any], AsyncIterator[Any]]) -> Any:
        return await self._serve(generator_pb2, generator_pb2_grpc, "GeneratorService", "Generate", handler)

    async def client_stream(self, handler: Callable[[Any, Any], Awaitable[Any]]) -> Any:
        return await self._serve(retriever_pb2, retriever_pb2_grpc, "RetrieverService", "Upsert", handler)

    async def bidi(self, handler: Callable[[Any, Any], AsyncIterator[Any]]) -> Any:
        return await self._serve(guardrails_pb2, guardrails_pb2_grpc, "GuardrailsService", "Detect", handler)

    async def _serve(self, messages: Any, stubs: Any, service: str, method: str, handler: Any) -> Any:
        base = getattr(stubs, f"{service}Servicer")
        servicer = type("Servicer", (base,), {method: staticmethod(handler)})()
        add = getattr(stubs, f"add_{service}Servicer_to_server")
        channel = await self._stack.enter_async_context(
            grpc_service(messages.DESCRIPTOR.services_by_name[service], lambda server: add(servicer, server))
        )
        return getattr(getattr(stubs, f"{service}Stub")(channel), method)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with AsyncExitStack() as stack:
        yield Served(stack)


@pytest.fixture
def log() -> Any:
    """Capture the log of the test, and yield the list of its entries."""
    with structlog.testing.capture_logs() as entries:
        yield entries


@pytest.fixture
async def nats_url(tmp_path: Path) -> AsyncIterator[str]:
    async with nats_server(tmp_path / "nats") as url:
        yield url


@pytest.fixture
async def client(nats_url: str) -> AsyncIterator[Client]:
    """Return a connection to a nats-server for the test."""
    connection = await nats.connect(nats_url, "test")
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture
async def transport(client: Client) -> IngestTransport:
    """Return the streams and buckets of ingest on a nats-server for the test."""
    return await nats.ingest_transport(client)
