"""The connection to a Triton server, tested with a recording server."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest
from causeway_testing.generator import FakeTokenCounter
from generator.domain import ChatMessage, Conversation, Event
from generator.triton.config import TritonConfig
from generator.triton.model import TritonModel
from pydantic import SecretStr
from servicekit.errors import (
    CausewayError,
    DeadlineExceeded,
    InvalidRequest,
    NotSupported,
    RateLimited,
    Unavailable,
    UpstreamRejected,
)
from tritonclient.grpc import model_config_pb2, service_pb2, service_pb2_grpc

BYTES, BOOL, FP32, UINT32 = (
    model_config_pb2.TYPE_STRING,
    model_config_pb2.TYPE_BOOL,
    model_config_pb2.TYPE_FP32,
    model_config_pb2.TYPE_UINT32,
)
VLLM = {"text_input": BYTES, "stream": BOOL, "sampling_parameters": BYTES, "exclude_input_in_output": BOOL}


class Recording(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # Triton's client has no types
    """A Triton server that answers every request with the same words.

    Attributes:
        failure: The status and message after the words.
        outputs_of_all: The name, type and bytes of each further output of a response.
        written: The number of bytes that the connection accepted.
    """

    def __init__(self) -> None:
        self.inputs: dict[str, int] = VLLM
        self.outputs: dict[str, int] = {"text_output": BYTES}
        self.words: list[bytes] = [b"hello"]
        self.outputs_of_all: list[tuple[str, str, bytes]] = []
        self.failure: tuple[grpc.StatusCode, str] | None = None
        self.error_message = ""
        self.requests: list[Any] = []
        self.metadata: list[dict[str, str]] = []
        self.description_count = 0
        self.written = 0

    async def ModelConfig(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        self.description_count += 1
        return service_pb2.ModelConfigResponse(
            config=model_config_pb2.ModelConfig(
                name=request.name,
                input=[
                    model_config_pb2.ModelInput(name=name, data_type=kind, dims=[1])
                    for name, kind in self.inputs.items()
                ],
                output=[
                    model_config_pb2.ModelOutput(name=name, data_type=kind, dims=[1])
                    for name, kind in self.outputs.items()
                ],
            )
        )

    async def ModelStreamInfer(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802  # likewise
        async for request in requests:
            self.requests.append(request)
            self.metadata.append(dict(context.invocation_metadata()))
            for word in self.words:
                response = service_pb2.ModelStreamInferResponse()
                response.infer_response.outputs.add(name="text_output", datatype="BYTES", shape=[1])
                response.infer_response.raw_output_contents.append(len(word).to_bytes(4, "little") + word)
                for name, datatype, raw in self.outputs_of_all:
                    response.infer_response.outputs.add(name=name, datatype=datatype, shape=[1])
                    response.infer_response.raw_output_contents.append(raw)
                yield response
                self.written += len(word)
            if self.error_message:
                yield service_pb2.ModelStreamInferResponse(error_message=self.error_message)
            if self.failure:
                await context.abort(*self.failure)


@pytest.fixture
async def recording() -> AsyncIterator[tuple[Recording, Callable[..., TritonModel]]]:
    """Start the recording server, and yield a function that returns models on this server."""
    servicer, server = Recording(), grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with contextlib.AsyncExitStack() as stack:

        def make(**members: Any) -> TritonModel:
            config = TritonConfig(f"127.0.0.1:{port}", "llm", **members)
            model = TritonModel("public", config, tokens=FakeTokenCounter())
            stack.push_async_callback(model.aclose)
            return model

        yield servicer, make
    await server.stop(None)


async def answered(model: TritonModel, **parameters: Any) -> list[Event]:
    conversation = Conversation((ChatMessage("user", "Hi"),), parameters_json=json.dumps(parameters).encode())
    return [event async for event in model.generate(conversation)]


async def test_the_vllm_backend_gets_its_contract(recording: Any) -> None:
    """The request has the prompt, the boolean inputs and the sampling parameters as one JSON object with a limit of
    tokens.
    """
    servicer, make = recording
    await answered(make(), temperature=0.5, stop=["a", "b"], seed=-3, top_k=5)
    (request,) = servicer.requests
    sent = dict(zip((tensor.name for tensor in request.inputs), request.raw_input_contents, strict=True))
    assert request.model_name == "llm"
    assert sent.keys() == VLLM.keys()
    assert sent["text_input"][4:] == b"user: Hi\n\nassistant:"
    assert sent["stream"] == sent["exclude_input_in_output"] == b"\x01"
    assert json.loads(sent["sampling_parameters"][4:]) == {
        "temperature": 0.5,
        "seed": -3,
        "top_k": 5,
        "max_tokens": 1024,
        "stop": ["a", "b"],
    }


async def test_the_model_is_described_once(recording: Any) -> None:
    """The model's configuration is read once, and again after a failure, which may mean another model."""
    servicer, make = recording
    model = make()
    await answered(model)
    await answered(model)
    assert servicer.description_count == 1
    servicer.failure = (grpc.StatusCode.INVALID_ARGUMENT, "unexpected inference input")
    with pytest.raises(CausewayError):
        await answered(model)
    servicer.failure = None
    await answered(model)
    assert servicer.description_count == 2


async def test_the_key_is_in_the_metadata(recording: Any) -> None:
    """The key is in the metadata and in no representation."""
    servicer, make = recording
    model = make(api_key=SecretStr("secret"))
    await answered(model)
    assert servicer.metadata[0]["authorization"] == "Bearer secret"
    assert "secret" not in repr(model.__dict__)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, InvalidRequest),
        (grpc.StatusCode.UNAVAILABLE, Unavailable),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, RateLimited),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DeadlineExceeded),
        (grpc.StatusCode.INTERNAL, UpstreamRejected),
    ],
)
async def test_a_failure_before_the_answer_has_the_error_of_its_status(
    recording: Any, code: grpc.StatusCode, error: type[CausewayError]
) -> None:
    """A failure before the answer becomes the error of its status, with the model's message."""
    servicer, make = recording
    servicer.words, servicer.failure = [], (code, "the prompt is too long")
    with pytest.raises(error) as caught:
        await answered(make())
    assert type(caught.value) is error
    if isinstance(caught.value, UpstreamRejected):
        assert json.loads(caught.value.body)["error"]["message"] == "the prompt is too long"
        assert caught.value.status == 500


async def test_a_failure_within_the_answer_is_unavailable(recording: Any) -> None:
    """Any failure within the answer raises Unavailable without the server's message."""
    servicer, make = recording
    servicer.failure = (grpc.StatusCode.INVALID_ARGUMENT, "late")
    with pytest.raises(Unavailable, match="before its answer was complete"):
        await answered(make())
    servicer.failure, servicer.error_message = None, "CUDA out of memory at 0x7f"
    with pytest.raises(Unavailable, match="before its answer was complete") as caught:
        await answered(make())
    assert "CUDA" not in str(caught.value)


async def test_a_stream_without_a_response_is_unavailable(recording: Any) -> None:
    """A stream that ends without a response raises Unavailable."""
    servicer, make = recording
    servicer.words = []
    with pytest.raises(Unavailable, match="without an answer"):
        await answered(make())


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        ({"image": FP32}, {"text_output": BYTES}),
        (VLLM, {"embedding": FP32}),
        ({"text_input": UINT32}, {"text_output": BYTES}),
    ],
)
async def test_a_model_that_does_not_generate_text_is_refused(
    recording: Any, inputs: dict[str, int], outputs: dict[str, int]
) -> None:
    """A model that does not generate text is refused by name."""
    servicer, make = recording
    servicer.inputs, servicer.outputs = inputs, outputs
    with pytest.raises(NotSupported, match="'llm' does not have the input text_input and the output text_output"):
        await answered(make())


@pytest.mark.parametrize(
    "output",
    [
        ("finish_reason", "BYTES", b"\x01"),
        ("finish_reason", "BYTES", b"\x04\x00\x00\x00st"),
        ("finish_reason", "UINT32", b"\x01\x00\x00\x00"),
        ("num_input_tokens", "UINT32", b"\x01\x00"),
        ("num_output_tokens", "BYTES", b"\x01\x00\x00\x007"),
    ],
)
async def test_an_invalid_tensor_is_unavailable(recording: Any, output: tuple[str, str, bytes]) -> None:
    """A truncated tensor, or one of a wrong type, raises Unavailable."""
    servicer, make = recording
    servicer.outputs_of_all = [output]
    with pytest.raises(Unavailable, match="cannot be read"):
        await answered(make())


async def test_invalid_counts_are_replaced(recording: Any) -> None:
    """Invalid counts are replaced by the generator's own, and invalid bytes by a replacement character."""
    servicer, make = recording
    servicer.words = [b"one \xff two"]
    minus = (-1).to_bytes(8, "little", signed=True)
    servicer.outputs_of_all = [
        ("num_input_tokens", "INT64", minus),
        ("num_output_tokens", "INT64", minus),
        ("finish_reason", "BYTES", b"\x01\x00\x00\x00\xff"),
    ]
    *_, text_event, finish, usage = await answered(make())
    assert text_event.text == "one \ufffd two"
    assert finish.text == "\ufffd"
    assert usage.usage is not None
    assert not usage.usage.exact
    assert usage.usage.completion_tokens == 3


async def test_a_character_cut_between_responses_arrives_complete(recording: Any) -> None:
    """A character that is cut between responses arrives complete. An incomplete last one is replaced."""
    servicer, make = recording
    servicer.words = ["für".encode()[:2], "für".encode()[2:], b"\xe2\x82"]
    events = await answered(make())
    assert "".join(event.text for event in events if event.kind == 2) == "für\ufffd"


async def test_a_reader_that_stops_reading_stops_the_server(recording: Any) -> None:
    """The server writes at most as much unread data as the flow-control windows of the connection allow."""
    servicer, make = recording
    servicer.words = [b"x" * 4096] * 20_000  # 80 MB
    conversation = Conversation((ChatMessage("user", "Hi"),))
    answer = make().generate(conversation)
    for _ in range(3):
        await anext(answer)
    last = -1
    while servicer.written != last:
        last = servicer.written
        await asyncio.sleep(0.2)
    assert last < 1024 * 1024
    await answer.aclose()


async def test_a_response_above_the_limit_is_refused(recording: Any) -> None:
    """A response above the limit is refused."""
    servicer, make = recording
    servicer.words = [b"x" * 200_000]
    with pytest.raises(CausewayError):
        await answered(make(max_bytes=100_000))
