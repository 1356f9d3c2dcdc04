"""Fixtures of the generator's tests: a recording model server, models on it, and the service over gRPC."""

import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog
from causeway.generator.v1 import generator_pb2 as pb
from causeway.generator.v1 import generator_pb2_grpc
from causeway_testing.generator import FakeCatalogue, FakeTokenCounter
from causeway_testing.model_server import ModelServer as Stub
from causeway_testing.servers import grpc_service
from causeway_testing.triton import triton_server
from generator.openai.endpoint import Endpoint
from generator.openai.model import OpenAIModel
from generator.openai.reply import Limits
from generator.openai.server import ModelServer
from generator.ports import Model
from generator.servicer import GeneratorServicer
from generator.triton.config import TritonConfig
from generator.triton.model import TritonModel
from servicekit.principal import LOCAL

DESCRIPTOR = pb.DESCRIPTOR.services_by_name["GeneratorService"]
LIMITS = Limits(connect=20, first_byte=20, idle=20, max_bytes=1024 * 1024)


@pytest.fixture(autouse=True, scope="session")
def _plain_logs() -> None:
    """Log tracebacks as plain lines, because a traceback with colours and local variables takes two seconds."""
    structlog.configure(processors=[structlog.processors.format_exc_info, structlog.processors.JSONRenderer()])


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    """Start a recording model server on a free port."""
    async with Stub.started() as server:
        yield server


@pytest.fixture
async def other() -> AsyncIterator[Stub]:
    """Start a second recording model server."""
    async with Stub.started() as server:
        yield server


@pytest.fixture
async def openai_model(stub: Stub) -> AsyncIterator[Callable[..., OpenAIModel]]:
    """Yield a function that creates models on the recording server, and close them at the end."""
    async with contextlib.AsyncExitStack() as stack:

        def make(
            remote_name: str = "stub",
            *,
            name: str = "public",
            limits: Limits = LIMITS,
            url: str | None = None,
            window: int | None = None,
        ) -> OpenAIModel:
            server = ModelServer(Endpoint(url or stub.url), limits)
            model = OpenAIModel(name, server, remote_name=remote_name, tokens=FakeTokenCounter(), window=window)
            stack.push_async_callback(model.aclose)
            return model

        yield make


Serve = Callable[..., contextlib.AbstractAsyncContextManager[Any]]


@pytest.fixture
def serve() -> Serve:
    """Return a function that serves models over gRPC with the interceptor of production, and yields a stub."""

    @contextlib.asynccontextmanager
    async def run(*models: Model) -> AsyncIterator[Any]:
        servicer = GeneratorServicer(FakeCatalogue(*models))

        def add(server: grpc.aio.Server) -> None:
            generator_pb2_grpc.add_GeneratorServiceServicer_to_server(servicer, server)

        async with grpc_service(DESCRIPTOR, add) as channel:
            yield generator_pb2_grpc.GeneratorServiceStub(channel)

    return run


@pytest.fixture
def conversation() -> Callable[..., pb.GenerateRequest]:
    """Return a function that creates a request with a conversation of one user message."""

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
    """Return a function that creates a request with a body of the OpenAI API."""

    def make(body: bytes, *, model: str = "") -> pb.GenerateRequest:
        return pb.GenerateRequest(principal=LOCAL.to_proto(), model=model, openai_request_json=body)

    return make


REPOSITORY = Path(__file__).parents[3] / "deploy" / "triton" / "model_repository"
ENSEMBLE = """
backend: "python"
max_batch_size: 8
model_transaction_policy { decoupled: true }
input [
  { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "max_tokens" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "bad_words" data_type: TYPE_STRING dims: [ -1 ] },
  { name: "stop_words" data_type: TYPE_STRING dims: [ -1 ] optional: true },
  { name: "temperature" data_type: TYPE_FP32 dims: [ 1 ] optional: true },
  { name: "random_seed" data_type: TYPE_UINT64 dims: [ 1 ] optional: true },
  { name: "stream" data_type: TYPE_BOOL dims: [ 1 ] optional: true }
]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""

PLAIN = """
backend: "python"
max_batch_size: 0
model_transaction_policy { decoupled: true }
input [
  { name: "text_input" data_type: TYPE_STRING dims: [ 1 ] },
  { name: "max_tokens" data_type: TYPE_INT32 dims: [ 1 ] },
  { name: "stream" data_type: TYPE_BOOL dims: [ 1 ] }
]
output [ { name: "text_output" data_type: TYPE_STRING dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""


class Triton:
    """A real Triton server with models that repeat their prompt.

    ``words`` has the inputs of the vLLM backend, and ``ensemble`` those of TensorRT-LLM. ``slow`` is ``words`` at
    50 words a second, and ``broken`` fails after two words. ``deaf`` is slow and has no stop sequences.
    ``unloaded`` exists, but is not loaded.
    """

    def __init__(self, address: str, journal: Path) -> None:
        self.address = address
        self._journal = journal

    def journal(self, text: str) -> list[dict[str, Any]]:
        """Return the entries that the models wrote about prompts with this text."""
        lines = self._journal.read_text().splitlines() if self._journal.exists() else []
        return [entry for entry in map(json.loads, lines) if text in entry["text"]]


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    """Start one Triton server for all tests, because a start takes seconds."""
    repository, journal = tmp_path_factory.mktemp("repository"), tmp_path_factory.mktemp("journal") / "journal"
    words = (REPOSITORY / "words" / "config.pbtxt").read_text()
    configurations = {
        "words": (words, {"journal": str(journal)}),
        "slow": (words, {"journal": str(journal), "pace": "0.02"}),
        "broken": (words, {"fail_after": "2", "pace": "0.05"}),
        "ensemble": (ENSEMBLE, {"journal": str(journal)}),
        "deaf": (PLAIN, {"journal": str(journal), "pace": "0.02"}),
        "unloaded": (words, {}),
    }
    for name, (text, parameters) in configurations.items():
        shutil.copytree(REPOSITORY / "words", repository / name)
        added = [
            f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}'
            for key, value in parameters.items()
        ]
        (repository / name / "config.pbtxt").write_text("\n".join([text, *added]))
    with triton_server(repository, models=[name for name in configurations if name != "unloaded"]) as address:
        yield Triton(address, journal)


@pytest.fixture
async def triton_model(triton: Triton) -> AsyncIterator[Callable[..., TritonModel]]:
    """Yield a function that creates models on the Triton server, and close them at the end."""
    async with contextlib.AsyncExitStack() as stack:

        def make(server_name: str = "words", **members: Any) -> TritonModel:
            config = TritonConfig(
                **{
                    "address": triton.address,
                    "model": server_name,
                    "chat_template": "{{ messages[-1].content }}",
                    "connect": 60.0,
                    **members,
                }
            )
            model = TritonModel("public", config, tokens=FakeTokenCounter())
            stack.push_async_callback(model.aclose)
            return model

        yield make
