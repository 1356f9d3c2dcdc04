import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from causeway_testing.gateway.answering import FakeGenerator, FakeGuardrails, FakeIngest, FakeProbe
from causeway_testing.gateway.application import FakeHistory, FakeMemory, FakeOriginals, FakePictures, FakeResponses
from causeway_testing.gateway.indexes import FakeEmbedder, FakeIndexes, FakeTexts
from causeway_testing.gateway.jobs import FakeJobs
from causeway_testing.gateway.records import FakeRecords
from causeway_testing.gateway.response_log import FakeResponseJobs, FakeResponseLog
from causeway_testing.gateway.retrieval import FakeRetriever
from causeway_testing.servers import nats_server, span_exporter
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from fastapi.dependencies import models
from gateway.adapters import Services
from gateway.clients.nats_connection import NatsLink
from gateway.domain import Detectors, Passage
from gateway.frontends.profiles_file import FrontendsFile
from gateway.identity.content_sealing import ContentKeys
from gateway.identity.key_ring import KeyRing
from gateway.identity.link_signing import LinkKeys
from gateway.main import build_app
from gateway.quotas.ledger import Ledger
from gateway.response_runs.peers import Peers
from gateway.server.authentication import Tokens
from gateway.server.http_server import HttpServer, listen
from gateway.server.prices import Prices
from gateway.settings import Settings
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from servicekit.deadline import Deadline
from starlette.types import ASGIApp


def pytest_configure(config: pytest.Config) -> None:
    # Starlette leaves the file of an aborted form to the garbage collector.
    config.addinivalue_line("filterwarnings", "ignore:Unclosed file <tempfile.Spooled:ResourceWarning")


def passage(number: int, text: str, sourcepage: str = "") -> Passage:
    name = f"guide-{number}.pdf"
    return Passage(
        id=f"p{number}",
        index="docs",
        document_id=f"d{number}",
        sourcefile=name,
        sourcepage=sourcepage or f"{name}#page={number}",
        text=text,
        score=1.0 / (number + 1),
        dense_score=0.5,
        sparse_score=2.0,
        page=number,
    )


@pytest.fixture(autouse=True)
def allowed_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow the host names under which clients in the same process call the gateway."""
    monkeypatch.setenv("CAUSEWAY_ALLOWED_HOSTS", '["gateway", "g", "health"]')


PASSAGES = [passage(1, "The ferry leaves at nine."), passage(2, "The bridge opens at noon.")]


@dataclass
class Fakes:
    retriever: FakeRetriever = field(default_factory=lambda: FakeRetriever({"docs": list(PASSAGES), "empty": []}))
    generator: FakeGenerator = field(default_factory=lambda: FakeGenerator.saying("At ", "nine", "."))
    guardrails: FakeGuardrails = field(default_factory=FakeGuardrails)
    ingest: FakeIngest = field(default_factory=FakeIngest)
    originals: FakeOriginals = field(default_factory=FakeOriginals)
    pictures: FakePictures = field(default_factory=FakePictures)
    history: FakeHistory = field(default_factory=FakeHistory)
    memory: FakeMemory = field(default_factory=FakeMemory)
    responses: FakeResponses = field(default_factory=FakeResponses)
    response_log: FakeResponseLog = field(default_factory=FakeResponseLog)
    response_jobs: FakeResponseJobs = field(default_factory=FakeResponseJobs)
    indexes: FakeIndexes = field(default_factory=lambda: FakeIndexes({"docs": {}, "empty": {}}))
    embedder: FakeEmbedder = field(default_factory=FakeEmbedder)
    texts: FakeTexts = field(init=False)
    jobs: FakeJobs = field(init=False)
    probes: list[FakeProbe] = field(default_factory=lambda: [FakeProbe("retriever"), FakeProbe("nats")])
    policy: Detectors = field(default_factory=Detectors)
    frontends: FrontendsFile | None = None
    keys: KeyRing = field(default_factory=KeyRing)
    link_keys: LinkKeys = field(default_factory=LinkKeys)
    content_keys: ContentKeys = field(default_factory=lambda: ContentKeys.of(b"c" * 32))
    tokens: Tokens | None = None
    records: FakeRecords = field(default_factory=FakeRecords)
    prices: Prices = field(default_factory=Prices)
    ledger: Ledger | None = None
    peers: Peers = field(default_factory=Peers)

    def __post_init__(self) -> None:
        self.texts = FakeTexts(self.indexes)
        self.jobs = FakeJobs(self.ingest)

    def services(self) -> Services:
        self.jobs.ingest = self.ingest  # a test may have replaced it
        return Services(
            self.retriever,
            self.generator,
            self.guardrails,
            self.ingest,
            self.retriever,
            self.originals,
            self.pictures,
            self.history,
            self.memory,
            self.responses,
            self.response_log,
            self.response_jobs,
            self.texts,
            self.indexes,
            self.embedder,
            self.jobs,
            self.records,
            self.probes,
            lambda: self.policy,
            self.frontends,
            keys=self.keys,
            link_keys=self.link_keys,
            content_keys=self.content_keys,
            tokens=self.tokens,
            prices=lambda: self.prices,
            ledger=self.ledger,
            peers=self.peers,
        )


class Issuer:
    """An identity provider that signs tokens and serves its documents, directly or as an HTTP application.

    Attributes:
        url: The issuer of its tokens.
        requested_paths: The requested paths.
        status: The status of its responses.
    """

    def __init__(self, url: str = "https://id.example.com") -> None:
        self.url = url
        self.requested_paths: list[str] = []
        self.status = 200
        self._private: dict[str, Any] = {}
        self._public: list[dict[str, Any]] = []
        self.add("one")

    def add(self, key_id: str, algorithm: str = "ES256", bits: int = 2048, **members: Any) -> None:
        """Add a key, which signs from now on."""
        key: Any
        kind: Any
        if algorithm == "ES256":
            key, kind = ec.generate_private_key(ec.SECP256R1()), jwt.algorithms.ECAlgorithm
        else:
            key, kind = rsa.generate_private_key(65537, bits), jwt.algorithms.RSAAlgorithm
        public = kind.to_jwk(key.public_key(), as_dict=True)
        self._private[key_id] = key, algorithm
        self._public.append({**public, "kid": key_id, "use": "sig", **members})
        self.newest = key_id

    def remove(self, key_id: str) -> None:
        """Remove a key from the list. Its tokens remain."""
        self._public = [key for key in self._public if key["kid"] != key_id]

    def token(self, key_id: str = "", headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """Return a signed token without the claims that are None."""
        now = int(time.time())
        name = key_id or self.newest
        key, algorithm = self._private[name]
        all_claims = {"iss": self.url, "aud": "causeway", "sub": "ann", "iat": now, "exp": now + 300, **claims}
        present = {claim: value for claim, value in all_claims.items() if value is not None}
        return jwt.encode(present, key, algorithm, {"kid": name, **(headers or {})})

    def document(self, path: str) -> bytes:
        """Return the document of a path."""
        if path.endswith("/.well-known/openid-configuration"):
            return json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/keys"}).encode()
        return json.dumps({"keys": self._public}).encode()

    async def fetch(self, url: str) -> bytes:
        """Return a document without a network."""
        self.requested_paths.append(url.removeprefix(self.url))
        if self.status != 200:
            raise OSError(f"the status is {self.status}")
        return self.document(url)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.requested_paths.append(scope["path"])
        headers = [(b"location", b"/elsewhere")] if self.status == 302 else []
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.document(scope["path"])})


@pytest.fixture
def issuer() -> Issuer:
    """Return an identity provider without a network."""
    return Issuer()


@pytest.fixture
def issuer_at(serve: Callable[[ASGIApp], int]) -> Callable[[], Issuer]:
    """Return a function that serves an identity provider on a port."""

    def start() -> Issuer:
        made = Issuer()
        made.url = f"http://127.0.0.1:{serve(made)}"
        return made

    return start


@pytest.fixture(scope="session", autouse=True)
def spans() -> InMemorySpanExporter:
    """Return the exporter of all ended spans. Without it, every trace id is zero."""
    return span_exporter()


@pytest.fixture(autouse=True)
def without_route_caches() -> Iterator[None]:
    """Clear FastAPI's caches of route functions after each test.

    They keep 4,096 functions, and with them the last 50 or more applications of the tests, which slow down garbage
    collection. FastAPI has no public function for this.
    """
    yield
    models._is_gen_callable_cached.cache_clear()
    models._is_async_gen_callable_cached.cache_clear()
    models._is_coroutine_callable_cached.cache_clear()


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    """Return the address of a NATS server."""
    async with nats_server(tmp_path / "nats") as url:
        yield url


async def _ready(link: NatsLink) -> None:
    end = time.monotonic() + 60
    while await link.problem(Deadline.after(1)) is not None:
        assert time.monotonic() < end, "NATS did not become ready"
        await asyncio.sleep(0.02)


@pytest.fixture
def ready() -> Callable[[NatsLink], Awaitable[None]]:
    """Return a function that waits until a connection to NATS is ready."""
    return _ready


@pytest.fixture
async def link(url: str) -> AsyncIterator[NatsLink]:
    """Return a connection to NATS that is ready."""
    async with NatsLink(url) as link:
        await _ready(link)
        yield link


@pytest.fixture
def fakes() -> Fakes:
    return Fakes()


@pytest.fixture
def settings() -> Settings:
    return Settings(default_index="docs", max_body_bytes=20_000, max_upload_bytes=100_000)


@pytest.fixture
def draining() -> asyncio.Event:
    """Return the event that signals the application that its process is about to stop."""
    return asyncio.Event()


@pytest.fixture
def app(fakes: Fakes, settings: Settings, draining: asyncio.Event) -> ASGIApp:
    return build_app(settings, fakes.services(), draining=draining)


@pytest.fixture
async def client(app: ASGIApp) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of the application without a network."""
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        yield http


@pytest.fixture
async def serve() -> AsyncIterator[Callable[[ASGIApp], int]]:
    """Return a function that serves an application on a port."""
    async with contextlib.AsyncExitStack() as stack:

        def start(app: ASGIApp) -> int:
            listener = stack.enter_context(listen("127.0.0.1", 0))
            port: int = listener.getsockname()[1]
            server = HttpServer(app, grace=1)
            running = asyncio.create_task(server.serve([listener]))

            async def stop() -> None:
                server.should_exit = server.force_exit = True
                await running

            stack.push_async_callback(stop)
            return port

        yield start


@pytest.fixture
async def port(app: ASGIApp, serve: Callable[[ASGIApp], int]) -> int:
    """Return the application's port."""
    return serve(app)


@pytest.fixture
async def http(port: int) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client of the application over a real connection."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as client:
        yield client


NULL = type(None)
RESULT = {
    "captions": list,
    "category": (str, NULL),
    "content": str,
    "embedding": NULL,
    "groups": list,
    "id": str,
    "imageEmbedding": NULL,
    "oids": list,
    "sourcefile": str,
    "sourcepage": str,
}


def _has(value: Any, shape: dict[str, Any]) -> None:
    for name, kind in shape.items():
        assert name in value
        assert isinstance(value[name], kind), name


@pytest.fixture
def has() -> Callable[[Any, dict[str, Any]], None]:
    """Return a function that asserts that every member of a shape is present with its type."""
    return _has


@pytest.fixture
def check_context() -> Callable[[Any], None]:
    """Return a function that asserts that a context has the members of the protocols' examples."""

    def check(context: Any) -> None:
        assert all(isinstance(text, str) for text in context["data_points"]["text"])
        thoughts = {thought["title"]: thought for thought in context["thoughts"]}
        for thought in thoughts.values():
            _has(thought, {"title": str, "description": (str, list), "props": (dict, NULL)})
        assert isinstance(thoughts["Original user query"]["description"], str)
        _has(thoughts["Generated search query"]["props"], {"has_vector": bool, "use_semantic_captions": bool})
        for result in thoughts["Results"]["description"]:
            _has(result, RESULT)
        assert all(isinstance(message, str) for message in thoughts["Prompt"]["description"])

    return check
