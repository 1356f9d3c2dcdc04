"""Rerankers: the port's contract, the adapters, the file of rerankers, and the limits on failures and time."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from causeway_testing.clock import ManualClock
from causeway_testing.retriever.rerank_server import (
    CONFIGURATION,
    MODEL,
    RerankServer,
    rerank_server,
    write_tokenizer,
)
from causeway_testing.retriever.reranker import WordsReranker
from causeway_testing.servers import eventually, free_ports
from causeway_testing.triton import triton_server
from pydantic import SecretStr
from retriever.clients import reranker_file
from retriever.clients.http_reranker import HttpReranker
from retriever.clients.rerankers import open_rerankers
from retriever.clients.triton_reranker import TritonReranker
from retriever.domain.document import Document
from retriever.domain.query import Passage, Query, Rerank, Source
from retriever.ports.reranker import Rating, Reranker, RerankerFailed
from retriever.rerankers.registry import Rerankers
from retriever.rerankers.reranking import Reranking
from retriever.rerankers.resilience import ResilientReranker
from servicekit.errors import CausewayError, DeadlineExceeded, InvalidRequest, NotFound, RateLimited, Unavailable
from servicekit.secret_file import SecretFile, check_sendable
from servicekit.yaml_file import BadFile

WORDS = ["when", "does", "the", "ferry", "leave", "harbour", "bridge", "tolls", "rise", "tickets"]


@pytest.fixture
async def server() -> AsyncIterator[RerankServer]:
    """Start a rerank server."""
    async with rerank_server() as opened:
        yield opened


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a `tokenizer.json`."""
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    write_tokenizer(path, WORDS)
    return path


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a real Triton server with two cross-encoders, and yield its address."""
    repository = tmp_path_factory.mktemp("repository")
    for name, configuration in (
        ("pairs", CONFIGURATION),
        ("two", CONFIGURATION.replace("dims: [ 1 ]", "dims: [ 2 ]")),
    ):
        (repository / name / "1").mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(f'name: "{name}"\n{configuration}')
    (repository / "pairs" / "1" / "model.py").write_text(MODEL)
    two = MODEL.replace("np.float32)[:, None]", "np.float32)[:, None] * np.array([[-0.5, 0.5]], np.float32)")
    (repository / "two" / "1" / "model.py").write_text(two)
    with triton_server(repository, models=["pairs", "two"]) as address:
        yield address


def http_entry(url: str, **members: Any) -> reranker_file.HttpEntry:
    return reranker_file.HttpEntry(kind="http", **{"name": "r", "url": url, **members})


def triton_entry(url: str, tokenizer: Path, **members: Any) -> reranker_file.TritonEntry:
    given = {"name": "r", "model": "pairs", "url": url, "tokenizer": tokenizer, "max_tokens": 16, "batch": 4}
    return reranker_file.TritonEntry(kind="triton", **{**given, **members})


@pytest.fixture(params=["fake", "cohere", "tei", "triton", "two classes"])
async def reranker(
    request: pytest.FixtureRequest, server: RerankServer, tokenizer: Path
) -> AsyncIterator[Reranker]:
    """Yield each adapter with a server, and the fake."""
    adapter: Reranker = WordsReranker()
    if request.param == "cohere":
        adapter = HttpReranker(http_entry(f"{server.url}/v1"))
    elif request.param == "tei":
        adapter = HttpReranker(http_entry(f"{server.url}/tei/", api="tei"))
    elif request.param in ("triton", "two classes"):
        model = "pairs" if request.param == "triton" else "two"
        adapter = TritonReranker(triton_entry(request.getfixturevalue("triton"), tokenizer, model=model))
    yield adapter
    await adapter.aclose()
    await adapter.aclose()


async def test_each_text_gets_its_score(reranker: Reranker) -> None:
    """The scores have the order of the texts, and equal texts have equal scores."""
    texts = ["bridge tolls rise", "the ferry", "when does the ferry leave"] * 3
    ratings = await reranker.rate("when does the ferry leave", texts)
    scores = [rating.score for rating in ratings]
    assert len(scores) == 9
    assert scores[0] < scores[1] < scores[2]
    assert scores == pytest.approx(scores[:3] * 3)
    assert all(0 <= score <= 1 for score in scores)


async def test_any_text_can_be_rated(reranker: Reranker) -> None:
    """A reranker rates long texts, texts with special tokens, and texts in any script."""
    texts = ["ferry " * 500, "[SEP] [CLS]", "\u00e9\u4e2d\U0001f6a2"]
    assert len(await reranker.rate("the ferry \ufeff", texts)) == 3


async def test_a_renewed_key_is_sent_with_the_next_request(server: RerankServer, tmp_path: Path) -> None:
    """A changed key file takes effect with the next request."""
    (tmp_path / "key").write_text("old")
    times = itertools.count(step=10)
    key = SecretFile(tmp_path / "key", check_sendable, clock=lambda: next(times))
    one = HttpReranker(http_entry(f"{server.url}/v1", model="m", api_key=key))
    await one.rate("ferry", ["a"])
    (tmp_path / "key").write_text("renewed")
    await one.rate("ferry", ["a"])
    await one.aclose()
    assert [headers["authorization"] for _, headers, _ in server.requests] == ["Bearer old", "Bearer renewed"]


async def test_the_request_to_an_http_server(server: RerankServer) -> None:
    """An HTTP server gets the model, the query, the texts and the key, and rates all texts."""
    one = HttpReranker(http_entry(f"{server.url}/v1", model="m", api_key=SecretStr("k")))
    await one.rate("ferry", ["a", "b"])
    await one.aclose()
    other = HttpReranker(http_entry(f"{server.url}/tei", api="tei"))
    await other.rate("ferry", ["a"])
    await other.aclose()
    (path, headers, body), (_, plain, texts) = server.requests
    assert (path, headers["authorization"]) == ("/v1/rerank", "Bearer k")
    assert body == {"model": "m", "query": "ferry", "documents": ["a", "b"], "top_n": 2}
    assert texts == {"query": "ferry", "texts": ["a"], "truncate": True}
    assert "authorization" not in plain


async def test_captions_of_a_server(server: RerankServer) -> None:
    """The rating keeps the captions of a server, which are texts or objects with a text."""
    server.script = [{"results": [{"index": 0, "relevance_score": 0.5, "captions": [{"text": "one"}, "two"]}]}]
    reranker = HttpReranker(http_entry(f"{server.url}/v1"))
    assert await reranker.rate("q", ["one two"]) == [Rating(0.5, ("one", "two"))]
    await reranker.aclose()


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (429, RateLimited),
        (503, Unavailable),
        (401, RerankerFailed),
        (500, RerankerFailed),
        (307, RerankerFailed),  # the location is valid, but the client does not follow redirects
        ("no json", RerankerFailed),
        ({"results": []}, RerankerFailed),
        ([], RerankerFailed),
        ({"results": [{"index": 0}]}, RerankerFailed),
        ({"results": [{"index": 1, "relevance_score": 1}]}, RerankerFailed),
        ({"results": [{"index": "0", "relevance_score": 1}]}, RerankerFailed),
        ({"results": [{"index": 0, "relevance_score": 1e999}]}, RerankerFailed),
        ({"results": 7}, RerankerFailed),
        ("[1]", RerankerFailed),
    ],
)
async def test_invalid_answers_are_refused(server: RerankServer, step: Any, error: type[CausewayError]) -> None:
    """A refusal causes an error that names the reranker. So does an answer without a valid score for each text."""
    server.script = [step]
    reranker = HttpReranker(http_entry(f"{server.url}/v1"))
    with pytest.raises(error, match="reranker 'r'"):
        await reranker.rate("q", ["a"])
    assert len(server.requests) == 1
    await reranker.aclose()


async def test_unavailable_servers(tokenizer: Path, triton: str) -> None:
    """A server that is not running and a model that Triton does not have cause an error that names the reranker."""
    (port,) = free_ports(1)
    for adapter in (
        HttpReranker(http_entry(f"http://127.0.0.1:{port}")),
        TritonReranker(triton_entry(f"127.0.0.1:{port}", tokenizer)),
        TritonReranker(triton_entry(triton, tokenizer, model="unknown")),
    ):
        with pytest.raises(CausewayError, match="reranker 'r'"):
            await adapter.rate("q", ["a"])
        await adapter.aclose()


def test_a_tokenizer_that_cannot_be_read(tmp_path: Path) -> None:
    """The error names the file."""
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(ValueError, match=r"tokenizer\.json"):
        TritonReranker(triton_entry("localhost:1", path))


async def test_a_search_waits_at_most_the_time_out(server: RerankServer) -> None:
    """A call fails after the time-out, which includes the wait for a free slot."""
    server.hold.clear()
    reranker = ResilientReranker(HttpReranker(http_entry(f"{server.url}/v1")), "r", timeout=1, concurrency=2)
    calls = [asyncio.create_task(reranker.rate("q", ["a"])) for _ in range(6)]
    await eventually(lambda: server.together >= 2)
    await asyncio.sleep(0.1)
    assert server.together == 2
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(answer, DeadlineExceeded) for answer in answers)
    await reranker.aclose()


async def test_failures_open_the_circuit_breaker() -> None:
    """After three failures the circuit breaker is open, and the reranker is not called. Later one search calls it
    again, and a success closes the circuit breaker.
    """
    fake, clock = WordsReranker(), ManualClock(100.0)
    reranker = ResilientReranker(fake, "r", rest=10, now=clock)
    fake.failure = Unavailable("It is unavailable.")
    for _ in range(3):
        with pytest.raises(Unavailable, match="is unavailable"):
            await reranker.rate("q", ["a"])
    assert reranker.is_resting()
    with pytest.raises(Unavailable, match="not called for a while"):
        await reranker.rate("q", ["a"])
    assert len(fake.calls) == 3
    clock.now += 11
    with pytest.raises(Unavailable, match="is unavailable"):
        await reranker.rate("q", ["a"])
    assert reranker.is_resting()
    clock.now += 11
    fake.failure = None
    assert await reranker.rate("q", ["q"]) == [Rating(1.0)]
    assert not reranker.is_resting()
    await reranker.rate("q", ["a"])


async def test_a_defect_of_a_reranker_is_a_failure() -> None:
    """Any exception of a reranker becomes RerankerFailed."""

    class Broken(WordsReranker):
        async def rate(self, *_: Any) -> list[Rating]:
            raise RuntimeError("boom")

    with pytest.raises(RerankerFailed, match="'r' failed"):
        await ResilientReranker(Broken(), "r").rate("q", ["a"])


async def test_captions_outside_the_passage_are_dropped() -> None:
    """A caption that is not in the passage is dropped. A query without captions gets none."""

    class Captions(WordsReranker):
        async def rate(self, *_: Any) -> list[Rating]:
            return [Rating(1.0, ("two words", "made up"))]

    passage = Passage("a", "i", Document("d"), 0, 0, (), "two words", 1.0, None, None, Source.BOTH, 0, 0)
    reranking = Reranking(Rerankers([ResilientReranker(Captions(), "r")]))
    for requested, captions in ((True, ("two words",)), (False, ())):
        found = await reranking.reranked(Query(("i",), "q", rerank=Rerank(), captions=requested), [passage])
        assert found.passages[0].captions == captions


@pytest.fixture
def write(tmp_path: Path, tokenizer: Path) -> Callable[[str], Path]:
    """Yield a function that writes a file of rerankers into the directory of a tokenizer."""
    (tmp_path / "tokenizer.json").write_bytes(tokenizer.read_bytes())

    def written(text: str) -> Path:
        path = tmp_path / "rerankers.yaml"
        path.write_text(text)
        return path

    return written


GOOD = """
default: second
rerankers:
  - {name: first, kind: http, url: "http://localhost:1/v1", api_key: {env: KEY}}
  - {name: second, kind: triton, url: "localhost:1", tokenizer: tokenizer.json, required: true}
"""


async def test_the_rerankers_of_a_file(write: Callable[[str], Path]) -> None:
    """The file's rerankers have their names, the default is the named one, and none connects at the start."""
    rerankers = open_rerankers(write(GOOD), {"KEY": "k"})
    first, second = rerankers.get("first"), rerankers.get("")
    assert first is not None
    assert second is not None
    assert (second.name, second.required, second.candidates) == ("second", True, 50)
    assert (first.name, first.required) == ("first", False)
    with pytest.raises(NotFound):
        rerankers.get("third")
    await rerankers.aclose()
    assert open_rerankers(None, {}).get("") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rerankers: []", "rerankers"),
        (GOOD.replace("second\n", "third\n", 1), "default"),
        (GOOD.replace("name: first", "name: second"), "two rerankers"),
        (GOOD.replace("env: KEY", "env: GONE"), "GONE"),
        (GOOD.replace("kind: http", "kind: other"), "kind"),
        (GOOD.replace("tokenizer.json", "gone.json"), "no such file"),
        (GOOD.replace("required: true", "candidates: 0"), "candidates"),
        ("rerankers: [", "line 1"),
    ],
)
def test_invalid_files_are_refused(write: Callable[[str], Path], text: str, message: str) -> None:
    """The error says what is wrong in the file and does not contain the secret."""
    with pytest.raises(InvalidRequest, match=message) as caught:
        open_rerankers(write(text), {"KEY": "geheim"})
    assert caught.value.field == "rerankers_file"
    assert "geheim" not in str(caught.value)
    with pytest.raises(BadFile):
        reranker_file.read(write(text), {"KEY": "geheim"})


async def test_the_example_file_is_valid() -> None:
    """The service accepts the file in examples/."""
    rerankers = open_rerankers(Path(__file__).parents[4] / "examples" / "rerankers.yaml", {})
    assert rerankers.default is not None
    assert rerankers.default.name == "bge-reranker"
    await rerankers.aclose()


def test_the_documentation_lists_every_key() -> None:
    """The documentation's table of rerankers lists every key."""
    page = (Path(__file__).parents[4] / "docs" / "retrieval.md").read_text()
    for field in reranker_file.HttpEntry.model_fields.keys() | reranker_file.TritonEntry.model_fields.keys():
        assert f"`{field}`" in page
