"""Counts the Python function calls of the gateway, with a generator and a retriever in memory."""

import asyncio
import functools
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from causeway.generator.v1 import generator_pb2
from causeway.guardrails.v1 import guardrails_pb2
from causeway.retriever.v1 import document_pb2, retriever_pb2
from causeway_testing.gateway.answering import FakeGuardrails, FakeIngest
from causeway_testing.gateway.application import FakeHistory, FakeMemory, FakeOriginals, FakePictures, FakeResponses
from causeway_testing.gateway.indexes import FakeEmbedder, FakeIndexes, FakeTexts
from causeway_testing.gateway.jobs import FakeJobs
from causeway_testing.gateway.records import FakeRecords
from causeway_testing.gateway.response_log import FakeResponseJobs, FakeResponseLog
from causeway_testing.loopback import LoopbackChannel
from causeway_testing.model_answers import chunk
from detection.moderation.thread_pool import ThreadPool
from detection.shared import digest
from gateway.adapters import Services
from gateway.clients.generator import DESCRIPTOR as GENERATOR
from gateway.clients.generator import GrpcGenerator
from gateway.clients.local_detectors import LocalDetectors, LocalLibrary
from gateway.clients.local_guardrails import LocalGuardrails
from gateway.clients.retriever import DESCRIPTOR as RETRIEVER
from gateway.clients.retriever import GrpcRetriever
from gateway.clients.shared_detectors import SharedDetectors
from gateway.domain import Action, Detector, Detectors
from gateway.main import build_app
from gateway.ports.answering import Guardrails
from gateway.settings import Settings
from starlette.types import ASGIApp, Message

from call_counting.profiler import RPC, Work, calls
from call_counting.texts import text

_FEW, _MANY = 20, 120
_WINDOW = 8192
_QUESTION = [{"role": "user", "content": "When does the ferry to the harbour leave?"}]
_COMPLETIONS = "/v1/chat/completions"
_STREAMS: Mapping[str, Mapping[str, Any]] = {
    _COMPLETIONS: {"model": "fake", "messages": _QUESTION, "stream": True},
    "/chat/stream": {"messages": _QUESTION},
}
_LONG = 10_000
_DETECTORS = tuple(
    Detector("regex", Action.REDACT, params_json=b'{"regex":["%b"]}' % name)
    for name in (b"us-social-security-number", b"credit-card")
)
_TURNS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "a chat completion": (_COMPLETIONS, {"model": "fake", "messages": _QUESTION}),
    "a chat completion over an index": (
        _COMPLETIONS,
        {"model": "fake", "messages": _QUESTION, "index_name": "docs"},
    ),
    "a RAG chat": ("/chat", {"messages": _QUESTION}),
}


async def counts() -> dict[str, float]:
    """Return the Python function calls for a streamed token and for a turn, and the gRPC calls for a turn."""
    found: dict[str, float] = {}
    for path, streamed in _STREAMS.items():
        for name, judged in ((path, ()), (f"{path} with two detectors", _DETECTORS)):
            few, many = [await calls(_asking(path, streamed, tokens, judged)) for tokens in (_FEW, _MANY)]
            found[f"gateway, a token of {name}"] = (many - few) / (_MANY - _FEW)
    for name, (path, body) in _TURNS.items():
        platform = _Platform(_FEW)
        found[f"gateway, a turn of {name}"] = await calls(functools.partial(platform.ask, path, body))
        platform.channel.calls.clear()
        await platform.ask(path, body)
        found[f"{RPC}{name}"] = platform.channel.calls.total()
    return found


class _Models:
    """A generator. If `sent` is given, it sends a token after the gateway has forwarded the previous one."""

    def __init__(self, tokens: int, sent: asyncio.Event | None = None) -> None:
        self._tokens = tokens
        self._sent = sent

    async def _next(self, sent: asyncio.Event) -> None:
        await sent.wait()
        sent.clear()

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
                if self._sent is not None:
                    await self._next(self._sent)
            return
        yield _batch(generator_pb2.EVENT_KIND_START, raw_json=b'{"model":"fake"}')
        for _ in range(self._tokens):
            yield _batch(generator_pb2.EVENT_KIND_TEXT, text="word ")
            if self._sent is not None:
                await self._next(self._sent)
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
        text=text(at),
        sourcepage=f"{name}#page={at + 1}",
        score=1 / (at + 1),
        dense_score=0.5,
        sparse_score=2.0,
    )


class _Ready(SharedDetectors):
    """Detectors that are ready in the gateway from the start, so that the gateway never calls the service."""

    def __init__(self, detectors: Sequence[Detector]) -> None:
        service: Any = None
        workers = ThreadPool(1)
        super().__init__(service, workers)
        listed = guardrails_pb2.ListDetectorsResponse(
            detectors=[guardrails_pb2.Detector(detector_id="regex", library_digest=digest())],
            limits=guardrails_pb2.JudgingLimits(
                longest_text=_LONG, held_back=_LONG, held_whole=_LONG, detections=_LONG, seconds=60
            ),
        )
        self._detectors = LocalLibrary(listed, workers).build(detectors)
        assert self._detectors is not None

    def ready(self, detectors: Sequence[Detector]) -> LocalDetectors | None:  # noqa: ARG002  # always the same
        return self._detectors


class _Platform:
    """A gateway with a generator and a retriever in memory."""

    def __init__(self, tokens: int, detectors: Sequence[Detector] = ()) -> None:
        # Without detectors, one task reads and sends. With detectors there are two tasks, and without `sent` the
        # second task would get several tokens at once.
        self._sent = asyncio.Event()
        models = _Models(tokens, self._sent if detectors else None)
        self.channel = LoopbackChannel((GENERATOR, models), (RETRIEVER, _Passages()))
        passages: Any = GrpcRetriever(self.channel)  # type: ignore[arg-type]  # has the methods that the stubs call
        ingest, indexes = FakeIngest(), FakeIndexes({"docs": {}})
        guardrails: Guardrails = FakeGuardrails()
        if detectors:
            service: Any = None
            guardrails = LocalGuardrails(service, _Ready(detectors))
        self.app: ASGIApp = build_app(
            Settings(default_index="docs"),
            Services(
                passages,
                GrpcGenerator(self.channel),  # type: ignore[arg-type]  # as above
                guardrails,
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
                policy=lambda: Detectors(output=tuple(detectors)),
            ),
        )

    async def ask(self, path: str, body: Mapping[str, Any]) -> int:
        """Send a request; return the number of body messages of the response."""
        content = json.dumps(body).encode()
        requests = iter([{"type": "http.request", "body": content, "more_body": False}])
        pieces = 0

        async def receive() -> Message:
            for request in requests:
                return request
            await asyncio.Event().wait()  # the client does not disconnect
            raise AssertionError

        async def send(message: Message) -> None:
            nonlocal pieces
            if message["type"] == "http.response.start" and message["status"] != 200:
                raise AssertionError(f"{path} answers {message['status']}")
            pieces += bool(message.get("body"))
            self._sent.set()

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


def _asking(path: str, body: Mapping[str, Any], tokens: int, detectors: Sequence[Detector]) -> Work:
    platform = _Platform(tokens, detectors)

    async def work() -> None:
        pieces = await platform.ask(path, body)
        assert pieces >= tokens, f"{path}: {tokens} tokens arrived in {pieces} pieces"

    return work
