"""Fixtures of the generator's tests: a recording model server, models on it, and the service over gRPC."""

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
import structlog
from causeway.generator.v1 import generator_pb2 as pb
from causeway.generator.v1 import generator_pb2_grpc
from generator.fakes import FakeTokenCounter
from generator.models import Models
from generator.openai.model import OpenAIModel
from generator.openai.reply import Limits
from generator.openai.server import ModelServer
from generator.ports import Model
from generator.servicer import GeneratorServicer
from servicekit.principal import LOCAL
from servicekit.testing import grpc_service
from servicekit.testing_model_server import ModelServer as Stub

DESCRIPTOR = pb.DESCRIPTOR.services_by_name["GeneratorService"]
LIMITS = Limits(connect=2.0, first_byte=0.5, idle=0.5, most_bytes=1024 * 1024)


@pytest.fixture(autouse=True, scope="session")
def _plain_logs() -> None:
    """Tracebacks as lines: drawn with colours and local variables, one takes two seconds."""
    structlog.configure(processors=[structlog.processors.format_exc_info, structlog.processors.JSONRenderer()])


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    """A recording model server on a free port."""
    async with Stub.started() as server:
        yield server


@pytest.fixture
async def openai_model(stub: Stub) -> AsyncIterator[Callable[..., OpenAIModel]]:
    """Makes models on the recording server; they are closed at the end."""
    async with contextlib.AsyncExitStack() as stack:

        def make(
            server_name: str = "stub",
            *,
            name: str = "public",
            limits: Limits = LIMITS,
            url: str | None = None,
            window: int | None = None,
        ) -> OpenAIModel:
            server = ModelServer(url or stub.url, limits=limits)
            model = OpenAIModel(name, server, server_name=server_name, tokens=FakeTokenCounter(), window=window)
            stack.push_async_callback(model.aclose)
            return model

        yield make


Serve = Callable[..., contextlib.AbstractAsyncContextManager[Any]]


@pytest.fixture
def serve() -> Serve:
    """Serves models over gRPC, with the interceptor of production; yields a stub."""

    @contextlib.asynccontextmanager
    async def run(*models: Model, most_events: int = 256, most_bytes: int = 65536) -> AsyncIterator[Any]:
        servicer = GeneratorServicer(Models(models), most_events=most_events, most_bytes=most_bytes)

        def add(server: grpc.aio.Server) -> None:
            generator_pb2_grpc.add_GeneratorServiceServicer_to_server(servicer, server)

        async with grpc_service(DESCRIPTOR, add) as channel:
            yield generator_pb2_grpc.GeneratorServiceStub(channel)

    return run


@pytest.fixture
def conversation() -> Callable[..., pb.GenerateRequest]:
    """Makes a request with a conversation of one user message."""

    def make(text: str = "Hi", *, model: str = "", parameters: bytes = b"", **members: Any) -> pb.GenerateRequest:
        return pb.GenerateRequest(
            principal=LOCAL.to_proto(),
            model=model,
            conversation=pb.Conversation(
                messages=[pb.ChatMessage(role="user", text=text)], parameters_json=parameters, **members
            ),
        )

    return make


@pytest.fixture
def openai_request() -> Callable[..., pb.GenerateRequest]:
    """Makes a request with a body of the OpenAI API."""

    def make(body: bytes, *, model: str = "") -> pb.GenerateRequest:
        return pb.GenerateRequest(principal=LOCAL.to_proto(), model=model, openai_request_json=body)

    return make
