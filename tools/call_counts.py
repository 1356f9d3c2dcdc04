"""Count the Python calls of a streamed token and of a retrieval turn, and the gRPC calls of a turn.

Usage: python tools/call_counts.py [--update]

The services' own code runs in this process; fakes replace the other processes. Times depend on the machine; these
counts do not. Without an option, the program compares the counts with the baseline, call_counts.json. It fails if
a count is more than a fifth higher, or if a turn makes more gRPC calls. --update writes the counts as the new
baseline.
"""

import argparse
import asyncio
import contextlib
import functools
import gc
import io
import json
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from causeway.generator.v1 import generator_pb2
from causeway.retriever.v1 import document_pb2, retriever_pb2
from causeway_testing.gateway.answering import FakeGuardrails, FakeIngest
from causeway_testing.gateway.application import FakeHistory, FakeMemory, FakeOriginals, FakePictures, FakeResponses
from causeway_testing.gateway.indexes import FakeEmbedder, FakeIndexes, FakeTexts
from causeway_testing.gateway.jobs import FakeJobs
from causeway_testing.gateway.records import FakeRecords
from causeway_testing.gateway.response_log import FakeResponseJobs, FakeResponseLog
from causeway_testing.generator import FakeCatalogue, FakeTokenCounter
from causeway_testing.loopback import LoopbackChannel, LoopbackContext
from causeway_testing.model_answers import DONE, chunk, sse
from causeway_testing.retriever.bench import INDEX, Bench
from gateway.adapters import Services
from gateway.clients.generator import DESCRIPTOR as GENERATOR
from gateway.clients.generator import GrpcGenerator
from gateway.clients.retriever import DESCRIPTOR as RETRIEVER
from gateway.clients.retriever import GrpcRetriever
from gateway.main import build_app
from gateway.settings import Settings
from generator.gathering import Gathering
from generator.openai.model import OpenAIModel
from generator.openai.reply import Limits, Reply
from generator.servicer import GeneratorServicer
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.document import Document
from retriever.servicer import RetrieverServicer
from retriever.stores.edge.store import EdgeStore
from servicekit import logs, telemetry
from servicekit.principal import LOCAL
from servicekit.settings import ServiceSettings
from starlette.types import ASGIApp, Message

BASELINE = Path(__file__).with_suffix(".json")
MOST_GROWTH = 1.2
_RPC = "gRPC calls: "
_FEW, _MANY = 20, 120
_WINDOW = 8192
_CANDIDATES = 100
_SECONDS = 200
_WORDS = ["ferry", "bridge", "harbour", "bearing", "valve", "pump", "rope", "lamp", "mast", "sail", "oar", "deck"]

_QUESTION = [{"role": "user", "content": "When does the ferry to the harbour leave?"}]
_COMPLETIONS = "/v1/chat/completions"
_STREAMS: Mapping[str, Mapping[str, Any]] = {
    _COMPLETIONS: {"model": "fake", "messages": _QUESTION, "stream": True},
    "/chat/stream": {"messages": _QUESTION},
}
_TURNS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "a chat completion": (_COMPLETIONS, {"model": "fake", "messages": _QUESTION}),
    "a chat completion over an index": (
        _COMPLETIONS,
        {"model": "fake", "messages": _QUESTION, "index_name": "docs"},
    ),
    "a RAG chat": ("/chat", {"messages": _QUESTION}),
}

Work = Callable[[], Awaitable[object]]


async def counts() -> dict[str, float]:
    """Return all counts by name."""
    found: dict[str, float] = {}
    for path, streamed in _STREAMS.items():
        few, many = [await _calls(_asking(path, streamed, tokens)) for tokens in (_FEW, _MANY)]
        found[f"gateway, a token of {path}"] = (many - few) / (_MANY - _FEW)
    for kind in ("openai_request_json", "conversation"):
        few, many = [await _calls(_generating(kind, tokens)) for tokens in (_FEW, _MANY)]
        found[f"generator, a token of {kind}"] = (many - few) / (_MANY - _FEW)
    for name, (path, body) in _TURNS.items():
        platform = _Platform(_FEW)
        found[f"gateway, a turn of {name}"] = await _calls(functools.partial(platform.ask, path, body))
        platform.channel.calls.clear()
        await platform.ask(path, body)
        found[f"{_RPC}{name}"] = platform.channel.calls.total()
    found["retriever, a search"] = await _searching()
    return found


def problems(counts: Mapping[str, float], baseline: Mapping[str, float]) -> list[str]:
    """Return a message for each count that is above its bound or missing from the baseline."""
    found = []
    for name, count in counts.items():
        before = baseline.get(name)
        if before is None:
            found.append(f"{name}: the baseline has no such count")
        elif count > before * (1 if name.startswith(_RPC) else MOST_GROWTH):
            found.append(f"{name}: {count:g}, the baseline is {before:g}")
    return found


class _CountingProfiler:
    """Counts the calls of Python functions in this thread; each resumption of a coroutine counts as a call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, _: FrameType, event: str, __: object) -> None:
        if event == "call":
            self.calls += 1


async def _calls(work: Work) -> float:
    """Return the number of calls that `work` makes after its caches are filled."""
    await work()
    await work()
    profiler = _CountingProfiler()
    gc.collect()
    gc.disable()  # its callbacks come at any time
    sys.setprofile(profiler)
    try:
        await work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return profiler.calls


# The gateway, with a generator and a retriever that answer from memory.


class _Models:
    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    async def Generate(  # noqa: N802  # the contract's name
        self, request: generator_pb2.GenerateRequest, _: object
    ) -> AsyncGenerator[generator_pb2.GenerateResponse, None]:
        if request.WhichOneof("prompt") == "openai_request_json":
            if not json.loads(request.openai_request_json).get("stream"):
                yield _batch(generator_pb2.EVENT_KIND_COMPLETION, raw_json=_COMPLETION)
                return
            for _ in range(self._tokens):
                yield _batch(
                    generator_pb2.EVENT_KIND_CHUNK, raw_json=json.dumps(chunk({"content": "word "})).encode()
                )
            return
        yield _batch(generator_pb2.EVENT_KIND_START, raw_json=b'{"model":"fake"}')
        for _ in range(self._tokens):
            yield _batch(generator_pb2.EVENT_KIND_TEXT, text="word ")
        yield _batch(generator_pb2.EVENT_KIND_FINISH, text="stop")
        usage = generator_pb2.Usage(prompt_tokens=7, completion_tokens=self._tokens, exact=True)
        yield _batch(generator_pb2.EVENT_KIND_USAGE, usage=usage)

    async def CountTokens(  # noqa: N802  # the contract's name
        self, request: generator_pb2.CountTokensRequest, _: object
    ) -> generator_pb2.CountTokensResponse:
        return generator_pb2.CountTokensResponse(
            counts=[len(text.split()) for text in request.texts],
            messages_count=sum(len(message.text.split()) for message in request.messages),
            context_window=_WINDOW,
            exact=True,
            counting="words",
        )


_COMPLETION = json.dumps(
    {"choices": [{"index": 0, "message": {"role": "assistant", "content": "word"}, "finish_reason": "stop"}]}
).encode()


def _batch(kind: generator_pb2.EventKind.ValueType, **members: Any) -> generator_pb2.GenerateResponse:
    return generator_pb2.GenerateResponse(events=[generator_pb2.GenerateEvent(kind=kind, **members)])


class _Passages:
    async def GetIndex(  # noqa: N802  # the contract's name
        self, _: retriever_pb2.GetIndexRequest, __: object
    ) -> retriever_pb2.GetIndexResponse:
        return retriever_pb2.GetIndexResponse()

    async def Retrieve(  # noqa: N802  # the contract's name
        self, request: retriever_pb2.RetrieveRequest, _: object
    ) -> retriever_pb2.RetrieveResponse:
        return retriever_pb2.RetrieveResponse(passages=_passages(request.top))


@functools.cache
def _passages(top: int) -> list[retriever_pb2.Passage]:
    return [_passage(at) for at in range(top)]


def _passage(at: int) -> retriever_pb2.Passage:
    name = f"guide-{at}.pdf"
    return retriever_pb2.Passage(
        id=f"p{at}",
        index="docs",
        document=document_pb2.Document(document_id=f"d{at}", sourcefile=name),
        chunk_number=at,
        page=at + 1,
        text=_text(at),
        sourcepage=f"{name}#page={at + 1}",
        score=1 / (at + 1),
        dense_score=0.5,
        sparse_score=2.0,
    )


def _text(seed: int) -> str:
    return " ".join(_WORDS[(seed * 7 + at * (seed % 5 + 1)) % len(_WORDS)] for at in range(150))


class _Platform:
    """A gateway with a generator and a retriever that answer from memory."""

    def __init__(self, tokens: int) -> None:
        self.channel = LoopbackChannel((GENERATOR, _Models(tokens)), (RETRIEVER, _Passages()))
        passages: Any = GrpcRetriever(self.channel)  # type: ignore[arg-type]  # has the methods that the stubs call
        ingest, indexes = FakeIngest(), FakeIndexes({"docs": {}})
        self.app: ASGIApp = build_app(
            Settings(default_index="docs"),
            Services(
                passages,
                GrpcGenerator(self.channel),  # type: ignore[arg-type]  # as above
                FakeGuardrails(),
                ingest,
                passages,
                FakeOriginals(),
                FakePictures(),
                FakeHistory(),
                FakeMemory(),
                FakeResponses(),
                FakeResponseLog(),
                FakeResponseJobs(),
                FakeTexts(indexes),
                indexes,
                FakeEmbedder(),
                FakeJobs(ingest),
                FakeRecords(),
            ),
        )

    async def ask(self, path: str, body: Mapping[str, Any]) -> int:
        """Return the number of body messages of the answer."""
        content = json.dumps(body).encode()
        requests = iter([{"type": "http.request", "body": content, "more_body": False}])
        pieces = 0

        async def receive() -> Message:
            for request in requests:
                return request
            await asyncio.Event().wait()  # the client stays
            raise AssertionError

        async def send(message: Message) -> None:
            nonlocal pieces
            if message["type"] == "http.response.start" and message["status"] != 200:
                raise AssertionError(f"{path} answers {message['status']}")
            pieces += bool(message.get("body"))

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "method": "POST",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"host", b"127.0.0.1:8080"), (b"content-type", b"application/json")],
            "client": ("127.0.0.1", 4000),
            "server": ("127.0.0.1", 8080),
            "state": {},
        }
        await self.app(scope, receive, send)
        return pieces


def _asking(path: str, body: Mapping[str, Any], tokens: int) -> Work:
    platform = _Platform(tokens)

    async def work() -> None:
        pieces = await platform.ask(path, body)
        assert pieces >= tokens, f"{path}: {tokens} tokens came in {pieces} pieces"

    return work


# The generator, with a model server that sends the next token after the generator has sent the last one on.


class _Content:
    """The part of aiohttp's stream that `Reply` uses."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self._over = False

    def feed(self, piece: bytes) -> None:
        self._pieces.put_nowait(piece)

    async def readany(self) -> bytes:
        piece = await self._pieces.get()
        self._over = not piece
        return piece

    def is_eof(self) -> bool:
        return self._over


class _Response:
    connection = None
    headers: Mapping[str, str] = {"content-type": "text/event-stream"}

    def __init__(self) -> None:
        self.content = _Content()

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass


class _ModelServer:
    def __init__(self) -> None:
        self._response = _Response()
        self._gathering = Gathering(0.05)

    def opened(self) -> _Content:
        """Return the body of the next answer; the caller feeds it."""
        self._response = _Response()
        return self._response.content

    @contextlib.asynccontextmanager
    async def chat(self, *_: object, **__: object) -> AsyncIterator[Reply]:
        reply = Reply(self._response, Limits(), 60.0, self._gathering)  # type: ignore[arg-type]  # has the members that it uses
        try:
            yield reply
        finally:
            await reply.aclose()


def _generating(kind: str, tokens: int) -> Work:
    server = _ModelServer()
    model = OpenAIModel("fake", server, server_name="fake", tokens=FakeTokenCounter())  # type: ignore[arg-type]  # as above
    servicer = GeneratorServicer(FakeCatalogue(model), most_events=256, most_bytes=65536)
    request = generator_pb2.GenerateRequest(principal=LOCAL.to_proto())
    if kind == "conversation":
        request.conversation.messages.add(role="user", text="When?")
    else:
        request.openai_request_json = b'{"messages":[{"role":"user","content":"When?"}],"stream":true}'
    first = sse(chunk({"role": "assistant", "content": "word "}))
    token = sse(chunk({"content": "word "}))
    last = sse(chunk({}, "stop")) + DONE

    async def work() -> None:
        content = server.opened()
        pieces = iter([*[token] * (tokens - 1), last, b""])
        content.feed(first)
        messages = 0
        async for _ in servicer.Generate(request, LoopbackContext()):  # type: ignore[arg-type]  # as above
            messages += 1
            content.feed(next(pieces, b""))
        assert messages >= tokens, f"{kind}: {tokens} tokens came in {messages} messages"

    return work


# The retriever, over an index on disk.


async def _searching() -> float:
    with tempfile.TemporaryDirectory(prefix="causeway-calls-") as directory:
        scheduler = Scheduler()
        bench = await Bench.open(EdgeStore(Path(directory), scheduler), scheduler)
        try:
            for at in range(40):
                document = Document(f"d{at}", f"guide-{at}.pdf", generation=1, sha256=f"{at:064x}")
                await bench.put(document, [_text(at * 5 + chunk) for chunk in range(5)])
            nothing: Any = None  # what a search does not use
            servicer = RetrieverServicer(bench.retrieval, nothing, nothing, nothing, nothing, nothing)
            request = retriever_pb2.RetrieveRequest(
                principal=LOCAL.to_proto(), indexes=[INDEX], query="ferry to the harbour", top=_CANDIDATES
            )

            async def work() -> None:
                answer = await servicer.Retrieve(request, LoopbackContext())  # type: ignore[arg-type]  # as above
                assert len(answer.passages) == _CANDIDATES

            return await _calls(work)
        finally:
            await bench.aclose()


async def _in_time() -> dict[str, float]:
    async with asyncio.timeout(_SECONDS):
        return await counts()


@contextlib.contextmanager
def _as_in_production() -> Iterator[None]:
    """Configure logs and traces as the services do, and discard the log."""
    with contextlib.redirect_stderr(io.StringIO()):
        settings = ServiceSettings()
        logs.configure("calls", settings)
        telemetry.configure("calls", settings)
        yield


def main() -> int:
    """Run the command line; return 1 if a count is too high."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write the counts as the new baseline")
    update: bool = parser.parse_args().update
    with _as_in_production():
        found = {name: round(count, 1) for name, count in asyncio.run(_in_time()).items()}
    for name, count in found.items():
        print(f"{count:10g}  {name}")
    if update:
        BASELINE.write_text(json.dumps(found, indent=1) + "\n")
    messages = problems(found, json.loads(BASELINE.read_text()))
    print("\n".join(messages), end="\n" if messages else "")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
