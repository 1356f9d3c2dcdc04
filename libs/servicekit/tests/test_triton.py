"""servicekit.triton: connections to Triton servers, and their models that answer in one piece. The tests of
embedding, of the retriever's rerankers and of the generator use a real server.
"""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from causeway_testing.servers import free_ports
from opentelemetry import context
from pydantic import SecretStr
from servicekit import telemetry
from servicekit.secret_file import SecretFile, check_sendable
from servicekit.triton import TensorModel, TritonAddress, TritonFailed
from tritonclient.grpc import service_pb2, service_pb2_grpc

ONE = np.array([[1.0, 2.0]], np.float32)


class Server(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # generated without types
    """Speaks Triton's protocol; returns the input as FP32.

    Attributes:
        metadata_requests: Number of requests for the model's metadata.
        headers: The headers of the last request.
        refusal: The status with which requests are refused.
        raw: The bytes that replace the right answer.
        target: Its address.
    """

    def __init__(self) -> None:
        self.metadata_requests = 0
        self.headers: dict[str, Any] = {}
        self.refusal: grpc.StatusCode | None = None
        self.raw: bytes | None = None
        self.target = ""

    async def ModelMetadata(self, request: Any, call: Any) -> Any:  # noqa: N802  # the protocol's name
        """Return the model's tensors."""
        self.metadata_requests += 1
        made = service_pb2.ModelMetadataResponse(name=request.name)
        made.outputs.add(name="out", datatype="FP32", shape=[-1, 2])
        return made

    async def ModelInfer(self, request: Any, call: Any) -> Any:  # noqa: N802  # the protocol's name
        """Return the input."""
        self.headers = dict(call.invocation_metadata())
        if self.refusal is not None:
            await call.abort(self.refusal, "these words are for the log")
        made = service_pb2.ModelInferResponse(model_name=request.model_name)
        made.outputs.add(name="out", datatype="FP32", shape=request.inputs[0].shape)
        made.raw_output_contents.append(request.raw_input_contents[0] if self.raw is None else self.raw)
        return made


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    """Return a server."""
    serving, made = grpc.aio.server(), Server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(made, serving)
    made.target = f"127.0.0.1:{serving.add_insecure_port('127.0.0.1:0')}"
    await serving.start()
    yield made
    await serving.stop(None)


@pytest.fixture
async def model(server: Server) -> AsyncIterator[TensorModel[str]]:
    """Return a model of the server; its contract is the name of its output."""
    made = TensorModel(
        TritonAddress(server.target, api_key=SecretStr("k")), "m", lambda metadata: str(metadata.outputs[0].name)
    )
    yield made
    await made.aclose()
    await made.aclose()


async def infer(model: TensorModel[str], output: str = "") -> Any:
    return await model.infer([("in", "FP32", ONE)], output or await model.contract())


async def test_a_request_and_its_response(server: Server, model: TensorModel[str]) -> None:
    """Elements and shape are returned unchanged. The request has the key and the trace."""
    traced = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
    token = context.attach(telemetry.extract(traced))
    answer = await infer(model)
    context.detach(token)
    np.testing.assert_array_equal(answer, ONE)
    assert server.headers["authorization"] == "Bearer k"
    assert server.headers["traceparent"] == traced["traceparent"]


async def test_the_next_request_uses_a_renewed_key(server: Server, tmp_path: Path) -> None:
    """A new key in the key's file is used without a restart."""
    (tmp_path / "key").write_text("old")
    times = itertools.count(step=10)
    key = SecretFile(tmp_path / "key", check_sendable, clock=lambda: next(times))
    made = TensorModel(
        TritonAddress(server.target, api_key=key), "m", lambda metadata: str(metadata.outputs[0].name)
    )
    await infer(made)
    assert server.headers["authorization"] == "Bearer old"
    (tmp_path / "key").write_text("renewed")
    await infer(made)
    assert server.headers["authorization"] == "Bearer renewed"
    await made.aclose()


async def test_the_metadata_is_read_again_after_a_failure(server: Server, model: TensorModel[str]) -> None:
    """The metadata is read once for all requests. After a failure it is read again, because the model may have
    changed.
    """
    await infer(model)
    await infer(model)
    assert server.metadata_requests == 1
    server.refusal = grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(TritonFailed) as caught:
        await infer(model)
    assert (caught.value.code, caught.value.message) == (server.refusal, "these words are for the log")
    server.refusal = None
    await infer(model)
    assert server.metadata_requests == 2


async def test_the_metadata_of_an_unsuitable_model_is_read_each_time(server: Server) -> None:
    """The caller gets the error of the metadata's reader. A repaired model is found."""
    known: list[bool] = []

    def read(_: Any) -> str:
        known.append(len(known) > 0)
        if not known[-1]:
            raise LookupError("another kind")
        return "out"

    model = TensorModel(TritonAddress(server.target), "m", read)
    with pytest.raises(LookupError):
        await model.contract()
    assert await model.contract() == "out"
    await model.aclose()


@pytest.mark.parametrize(("output", "raw"), [("other", None), ("out", b"123")])
async def test_an_invalid_response_has_no_result(
    server: Server, model: TensorModel[str], output: str, raw: bytes | None
) -> None:
    """An answer without the output, or with bytes of a wrong size, is an error."""
    server.raw = raw
    assert await infer(model, output) is None


async def test_an_answer_that_is_too_large_is_refused(server: Server) -> None:
    """An answer that is too large is refused, with any content."""
    model = TensorModel(TritonAddress(server.target), "m", lambda _: "out", max_response_bytes=1000)
    server.raw = b"x" * 2000
    with pytest.raises(TritonFailed) as caught:
        await infer(model)
    assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED
    await model.aclose()


async def test_an_address_without_a_server_is_unavailable() -> None:
    """If no server answers, the status shows it at once."""
    (port,) = free_ports(1)
    model = TensorModel(TritonAddress(f"127.0.0.1:{port}"), "m", lambda _: "out")
    with pytest.raises(TritonFailed) as caught:
        await model.contract()
    assert caught.value.code is grpc.StatusCode.UNAVAILABLE
    await model.aclose()
