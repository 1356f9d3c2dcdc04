"""Models of servers: batches, limits, retries and checked vectors."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from causeway_testing.links import FixedResponseServer
from causeway_testing.servers import eventually, free_ports
from embedding import EmbeddingConfig, create_embedder
from embedding.cache import TOKENIZER, model_directory
from embedding.errors import SetupError, Unreachable, WrongVectors
from embedding.minilm import MiniLmEmbedder
from embedding.port import Embedder
from pydantic import SecretStr
from servicekit.errors import CausewayError, DeadlineExceeded, InvalidRequest, RateLimited, Unavailable
from servicekit.secret_file import SecretFile
from structlog.testing import capture_logs
from tritonclient.grpc import service_pb2, service_pb2_grpc

BUSY = (503, {"retry-after": "0"})


@pytest.fixture
def remote(embedding_server: Any) -> Callable[..., Embedder]:
    def create(**members: Any) -> Embedder:
        given = {"address": embedding_server.url, "model": "hashing", "dimension": 256, **members}
        return create_embedder(EmbeddingConfig("openai", **given))

    return create


def vectors(*rows: list[float]) -> bytes:
    return json.dumps({"data": [{"index": at, "embedding": row} for at, row in enumerate(rows)]}).encode()


async def test_texts_are_sent_in_concurrent_batches(embedding_server: Any, remote: Callable[..., Embedder]) -> None:
    """A request has at most a batch of texts, and at most the allowed number of requests run at the same time."""
    embedder = remote(batch=8, concurrency=3)
    embedding_server.released.clear()
    embedding = asyncio.create_task(embedder.embed([f"text {number}" for number in range(100)]))
    await eventually(lambda: embedding_server.together == 3)
    embedding_server.released.set()
    assert (await embedding).shape == (100, 256)
    assert embedding_server.together == 3
    assert sorted(len(request["input"]) for request in embedding_server.requests) == [4] + [8] * 12
    await embedder.aclose()


async def test_a_short_call_overtakes_a_long_one(embedding_server: Any, remote: Callable[..., Embedder]) -> None:
    """A query waits for the running requests and not for a whole document."""
    embedder = remote(batch=1, concurrency=2)
    embedding_server.released.clear()
    document = asyncio.create_task(embedder.embed([f"chunk {number}" for number in range(20)]))
    await eventually(lambda: len(embedding_server.requests) == 2)
    query = asyncio.create_task(embedder.embed(["a query"]))
    await asyncio.sleep(0)
    embedding_server.released.set()
    await asyncio.gather(document, query)
    assert [request["input"] for request in embedding_server.requests].index(["a query"]) < 10
    await embedder.aclose()


async def test_the_request_has_the_format_of_the_openai_api(
    embedding_server: Any, remote: Callable[..., Embedder]
) -> None:
    """The request has model, texts and key. It has the dimension only if the model is to shorten its vectors."""
    for ask in (False, True):
        embedder = remote(api_key=SecretStr("k"), ask_dimension=ask)
        await embedder.embed(["a"])
        await embedder.aclose()
    plain = {"model": "hashing", "encoding_format": "float", "input": ["a"]}
    assert embedding_server.requests == [plain, {**plain, "dimensions": 256}]
    assert embedding_server.headers[0]["authorization"] == "Bearer k"


async def test_texts_are_truncated_to_the_models_limit(
    embedding_server: Any, remote: Callable[..., Embedder]
) -> None:
    """A request has only the first max_tokens tokens of a text, because some servers refuse longer texts."""
    embedder = remote(max_tokens=2)
    await embedder.embed(["one two", "one two three"])
    assert [request["input"] for request in embedding_server.requests] == [["one two", "one two"]]
    await embedder.aclose()


async def test_the_next_request_uses_a_renewed_key(
    embedding_server: Any, remote: Callable[..., Embedder], tmp_path: Path
) -> None:
    """A new key in the key's file is used without a restart."""
    (tmp_path / "key").write_text("old")
    times = iter(range(0, 1000, 10))
    embedder = remote(api_key=SecretFile(tmp_path / "key", lambda _: None, clock=lambda: next(times)))
    await embedder.embed(["a"])
    (tmp_path / "key").write_text("renewed")
    await embedder.embed(["b"])
    await embedder.aclose()
    assert [headers["authorization"] for headers in embedding_server.headers] == ["Bearer old", "Bearer renewed"]


async def test_a_request_to_a_busy_server_is_repeated(
    embedding_server: Any, remote: Callable[..., Embedder]
) -> None:
    """After 429 and 503 the request is repeated a limited number of times. If the server requests a long pause, the
    request is not repeated, and the error has the server's retry time.
    """
    embedding_server.script = [BUSY, (429, {"retry-after": "0"}), BUSY]
    embedder = remote()
    assert (await embedder.embed(["a"])).shape == (1, 256)
    assert len(embedding_server.requests) == 4
    embedding_server.script = [BUSY] * 9
    with pytest.raises(Unavailable, match="not ready"):
        await embedder.embed(["a"])
    assert len(embedding_server.requests) == 8
    embedding_server.script = [(429, {"retry-after": "3600"})]
    with pytest.raises(RateLimited) as caught:
        await embedder.embed(["a"])
    assert caught.value.retry_after == 3600
    assert len(embedding_server.requests) == 9
    await embedder.aclose()


async def test_a_retry_waits_for_the_servers_retry_time(
    embedding_server: Any, remote: Callable[..., Embedder]
) -> None:
    """The next attempt does not begin before the retry time of the server."""
    embedding_server.script = [(429, {"retry-after": "0.5"})]
    embedder = remote()
    start = time.monotonic()
    await embedder.embed(["a"])
    assert time.monotonic() - start >= 0.5
    await embedder.aclose()


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ((400, {}), InvalidRequest),
        ((401, {}), WrongVectors),
        ((404, {}), WrongVectors),
        ((500, {}), WrongVectors),
        (b"no json", WrongVectors),
        (b'{"data":[]}', WrongVectors),
        (b'{"data":"\xff"}', WrongVectors),
        (b'{"data":' + b"[" * 50_000, WrongVectors),
        (b'{"model":' + b"[" * 50_000, WrongVectors),
        (vectors([1.0] * 256, [1.0] * 256), WrongVectors),
        (vectors([1.0, 2.0]), WrongVectors),
        (vectors([0.0] * 256), WrongVectors),
        (vectors([1e300] * 256), WrongVectors),
    ],
)
async def test_permanent_failures_are_not_retried(
    embedding_server: Any, remote: Callable[..., Embedder], step: Any, error: type[CausewayError]
) -> None:
    """Refusals, invalid responses, and vectors of a wrong number, a wrong dimension or no direction cause one
    attempt only.
    """
    embedding_server.script = [step]
    embedder = remote()
    with pytest.raises(error, match="embedding server"), np.errstate(over="ignore"):
        await embedder.embed(["a"])
    assert len(embedding_server.requests) == 1
    await embedder.aclose()


async def test_a_request_to_a_server_that_hangs_times_out(
    embedding_server: Any, remote: Callable[..., Embedder]
) -> None:
    """A request without an answer ends at the time limit, without another attempt."""
    embedding_server.released.clear()
    embedder = remote(timeout=0.2)
    with pytest.raises(DeadlineExceeded, match=r"within 0\.2 s"):
        await embedder.embed(["a"])
    assert len(embedding_server.requests) == 1
    embedding_server.released.set()
    await embedder.aclose()


@pytest.mark.parametrize("kind", ["openai", "triton"])
async def test_a_server_that_cannot_be_reached_is_unavailable(kind: Any) -> None:
    """The error has the platform's name of the model and the time for a retry. The embedder itself retries sooner.
    The log does not call the failure a refusal.
    """
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}/v1" if kind == "openai" else f"127.0.0.1:{port}"
    embedder = create_embedder(
        EmbeddingConfig(kind, address=address, model="m", name="public", dimension=3, tries=2)
    )
    with capture_logs() as logs, pytest.raises(Unavailable, match=r"'public'.* cannot be reached") as caught:
        await embedder.embed(["a"])
    assert caught.value.retry_after == 1
    assert [line["pause"] < 1 for line in logs if line["event"].startswith("retrying")] == [True]
    assert not any("refused" in line["event"] for line in logs)
    await embedder.aclose()


@pytest.mark.parametrize(
    "response",
    [
        b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"data":',
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope",
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
    ],
)
async def test_an_incomplete_response_is_an_unreachable_server(response: bytes) -> None:
    """The error is the same wherever the response breaks off, and for a response in another protocol."""
    async with FixedResponseServer.started() as fixed:
        fixed.response = response
        address = f"http://127.0.0.1:{fixed.port}/v1"
        embedder = create_embedder(EmbeddingConfig("openai", address=address, model="m", dimension=2, tries=1))
        with pytest.raises(Unreachable):
            await embedder.embed(["a"])
        await embedder.aclose()


async def test_closing_waits_for_running_requests(embedding_server: Any, remote: Callable[..., Embedder]) -> None:
    """Running requests finish. The remaining texts are not embedded."""
    embedder = remote(batch=1, concurrency=1)
    embedding_server.released.clear()
    call = asyncio.create_task(embedder.embed(["a", "b", "c"]))
    await eventually(lambda: len(embedding_server.requests) == 1)
    closing = asyncio.create_task(embedder.aclose())
    await asyncio.sleep(0.05)
    assert not closing.done()
    embedding_server.released.set()
    await closing
    with pytest.raises(Unavailable, match="shut down"):
        await call
    assert len(embedding_server.requests) == 1


async def test_triton_gives_the_bundled_models_vectors(triton: str, cache: Path) -> None:
    """The model of deploy/triton returns the vectors of the bundled model, so that an index may use both models."""
    served = create_embedder(
        EmbeddingConfig(
            "triton",
            address=triton,
            model="all-minilm-l6-v2",
            dimension=384,
            max_tokens=254,
            tokenizer=model_directory(cache, "int8") / TOKENIZER,
        )
    )
    bundled = MiniLmEmbedder.load(cache)
    texts = ["When does the ferry leave?", "word " * 400, "ü 漢字 [SEP]"]
    np.testing.assert_allclose(await served.embed(texts), await bundled.embed(texts), atol=1e-6)
    assert (served.model, served.dimension, served.max_tokens) == (bundled.model, 384, bundled.max_tokens)
    await served.aclose()
    await bundled.aclose()


@pytest.mark.parametrize(
    ("model", "message"),
    [("words", "does not map one input of strings to FP32"), ("nobody", "server of 'nobody' failed")],
)
async def test_an_unsuitable_model_on_triton_is_reported(triton: str, model: str, message: str) -> None:
    """A model that generates text, and a missing model, are configuration errors and cause one attempt only."""
    embedder = create_embedder(EmbeddingConfig("triton", address=triton, model=model, dimension=384))
    with capture_logs() as logs, pytest.raises(WrongVectors, match=message):
        await embedder.embed(["a"])
    assert not any(line["event"].startswith("retrying") for line in logs)
    await embedder.aclose()


@pytest.mark.parametrize(
    ("datatype", "shape", "raw"),
    [
        ("FP32", [1, 2], b"\x00" * 7),
        ("FP32", [1, 2], b"\x00" * 4),
        ("FP32", [0, 2], b""),
        ("BYTES", [1, 2], b"\x01"),
        ("BYTES", [1, 2], b"\x09\x00\x00\x00"),
        ("", [1, 2], b""),
    ],
)
async def test_invalid_tensors_are_refused(datatype: str, shape: list[int], raw: bytes) -> None:
    """Tensors that are empty or truncated, or have another type than the model's description, are an error."""

    class InvalidServicer(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # it has no types
        async def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
            answer = service_pb2.ModelMetadataResponse(name=request.name)
            answer.inputs.add(name="texts", datatype="BYTES", shape=[-1])
            answer.outputs.add(name="vectors", datatype="FP32", shape=[-1, 2])
            return answer

        async def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802  # likewise
            answer = service_pb2.ModelInferResponse(model_name=request.model_name)
            answer.outputs.add(name="vectors", datatype=datatype, shape=shape)
            answer.raw_output_contents.append(raw)
            return answer

    server = grpc.aio.server()
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(InvalidServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    embedder = create_embedder(EmbeddingConfig("triton", address=f"127.0.0.1:{port}", model="m", dimension=2))
    with pytest.raises(WrongVectors, match="sent no valid 'vectors'"):
        await embedder.embed(["a"])
    await embedder.aclose()
    await server.stop(None)


def test_an_incomplete_configuration_is_refused(tmp_path: Path) -> None:
    """The error names the part of the configuration that is missing or cannot be read."""
    with pytest.raises(SetupError, match="needs: address, model, dimension"):
        create_embedder(EmbeddingConfig("openai"))
    with pytest.raises(SetupError, match="directory of its cache"):
        create_embedder(EmbeddingConfig())
    with pytest.raises(SetupError, match=r"tokenizer .*nowhere\.json cannot be read"):
        create_embedder(
            EmbeddingConfig("openai", address="a", model="m", dimension=1, tokenizer=tmp_path / "nowhere.json")
        )
