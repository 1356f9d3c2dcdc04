import asyncio
import contextlib
import json
import os
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.triton import triton_server
from embedding.build import build
from embedding.cache import GRAPH, TOKENIZER, default_cache_dir, model_directory
from embedding.minilm import MiniLmEmbedder


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache with the bundled model of this machine, which `make setup` has built."""
    directory = tmp_path_factory.mktemp("cache")
    built = build(default_cache_dir(os.environ)).directory
    (directory / built.name).symlink_to(built)
    return directory


@pytest.fixture(scope="session")
def built_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache with both graphs, built from the installed weights by the current code."""
    directory = tmp_path_factory.mktemp("built")
    build(directory, "int8")
    build(directory, "fp32")
    return directory


@pytest.fixture
async def minilm(cache: Path) -> AsyncIterator[MiniLmEmbedder]:
    """Return the bundled model as services load it."""
    embedder = MiniLmEmbedder.load(cache, workers=2)
    yield embedder
    await embedder.aclose()


@pytest.fixture(scope="session")
def passages() -> list[str]:
    """Return a hundred paragraphs of the sample corpus, from all of its Markdown documents."""
    corpus = Path(__file__).parents[3] / "examples" / "corpus"
    paragraphs = [
        paragraph.strip()
        for document in sorted(corpus.glob("*.md"))
        for paragraph in document.read_text(encoding="utf-8").split("\n\n")
        if len(paragraph.split()) >= 20
    ]
    assert len(paragraphs) >= 100, f"only {len(paragraphs)} paragraphs in {corpus}"
    return [paragraphs[number * len(paragraphs) // 100] for number in range(100)]


class EmbeddingServer(ThreadingHTTPServer):
    """A server with the OpenAI API's route for embeddings. It records the requests.

    The vectors are those of `HashingEmbedder`, times three.

    Attributes:
        script: The first answers, in order: a status with headers, or a body.
        requests: The received bodies.
        together: The highest number of concurrent requests.
        released: The server answers only while this event is set.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.script: list[tuple[int, dict[str, str]] | bytes] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.together = self.now = 0
        self.released = threading.Event()
        self.released.set()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: EmbeddingServer
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        server = self.server
        with server.lock:
            server.now += 1
            server.together = max(server.together, server.now)
            server.requests.append(body)
            server.headers.append({name.lower(): value for name, value in self.headers.items()})
            step = server.script.pop(0) if server.script else None
        server.released.wait()
        headers: dict[str, str] = {}
        status, answer = 200, step if isinstance(step, bytes) else b"{}"
        if isinstance(step, tuple):
            status, headers = step
        elif step is None:
            answer = _embeddings(body["input"])
        with server.lock:
            server.now -= 1
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(answer))}.items():
            self.send_header(name, value)
        with contextlib.suppress(OSError):  # the client has closed the connection
            self.end_headers()
            self.wfile.write(answer)

    def log_message(self, *args: Any) -> None:
        pass


def _embeddings(texts: list[str]) -> bytes:
    vectors = asyncio.run(HashingEmbedder().embed(texts)) * 3
    entries = [{"object": "embedding", "index": at, "embedding": row} for at, row in enumerate(vectors.tolist())]
    return json.dumps({"object": "list", "data": entries[::-1], "model": "hashing"}).encode()


@pytest.fixture
def embedding_server() -> Iterator[EmbeddingServer]:
    """Return a recording server on a free port."""
    with EmbeddingServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.released.set()
        server.shutdown()
        thread.join()


@pytest.fixture(scope="session")
def triton(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[str]:
    """Return the address of a real Triton server with the models of deploy/triton that need no GPU."""
    models = Path(__file__).parents[3] / "deploy" / "triton" / "model_repository"
    repository = tmp_path_factory.mktemp("repository")
    for name in ("all-minilm-l6-v2", "words"):
        shutil.copytree(models / name, repository / name)
    for name in (GRAPH, TOKENIZER):
        shutil.copy(model_directory(cache, "int8") / name, repository / "all-minilm-l6-v2" / "1" / name)
    with triton_server(repository, models=["all-minilm-l6-v2", "words"]) as address:
        yield address
