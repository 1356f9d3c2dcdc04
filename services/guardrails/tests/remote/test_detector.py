"""guardrails.remote.detector: detectors on a real HTTP server, and their possible failures."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
from causeway_testing.guardrails.detectors import slow
from causeway_testing.guardrails.remote import DetectorStub, detector_server
from causeway_testing.servers import eventually, free_ports
from detection.chunking.chunkers import Window
from detection.detectors.params import BadParam
from detection.detectors.port import DetectorFailed
from detection.domain import Action, DetectionContext, DetectorKind, Direction, OnError
from detection.moderation.judge_calls import call_judge
from detection.moderation.rules import Rule
from guardrails.remote.config import RemoteConfig
from guardrails.remote.detector import RemoteFactory
from yarl import URL


@pytest.fixture
async def stub() -> AsyncIterator[DetectorStub]:
    """Serve a detector."""
    async with detector_server(DetectorStub()) as served:
        yield served


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    """Provide an HTTP session."""
    async with aiohttp.ClientSession() as opened:
        yield opened


def _factory(session: aiohttp.ClientSession, url: str, **values: Any) -> RemoteFactory:
    config: dict[str, Any] = {"kind": DetectorKind.CONTENTS, "seconds": 5.0} | values
    return RemoteFactory(RemoteConfig("hap", url=URL(url), **config), session)


async def test_all_texts_are_one_request(stub: DetectorStub, session: aiohttp.ClientSession) -> None:
    """The texts are one request with the detector's name and parameters, without the platform's parameters."""
    judge = slow(_factory(session, stub.url), threshold=0.5, replacement="#", level=3)
    found = await judge.judge(["a secret", "none", "🔑 secret"], DetectionContext())
    (request,) = stub.requests
    assert request.path == "/api/v1/text/contents"
    assert request.headers["detector-id"] == "hap"
    assert request.body == {"contents": ["a secret", "none", "🔑 secret"], "detector_params": {"level": 3}}
    assert [[(detection.start, detection.end, detection.text) for detection in of_text] for of_text in found] == [
        [(2, 8, "secret")], [], [(2, 8, "secret")],
    ]  # fmt: skip
    assert msgspec.json.decode(found[0][0].extra) == {"evidence": [{"name": "why"}]}


async def test_the_threshold_comes_from_the_request_or_the_configuration(
    stub: DetectorStub, session: aiohttp.ClientSession
) -> None:
    """The threshold is the request's, otherwise from the configuration. Wrong thresholds are refused by name."""
    factory = _factory(session, stub.url, threshold=0.3)
    assert factory.make(b"").threshold == 0.3
    assert factory.make(b'{"threshold": 1}').threshold == 1.0
    for params, path in ((b'{"threshold": 2}', "threshold"), (b'{"replacement": 2}', "replacement"), (b"[]", "")):
        with pytest.raises(BadParam) as raised:
            factory.make(params)
        assert raised.value.path == path


async def test_an_answer_is_judged_as_the_latest_message(
    stub: DetectorStub, session: aiohttp.ClientSession
) -> None:
    """An answer is judged as the conversation's latest message, with its tool calls. A question is judged
    unchanged.
    """
    stub.flat = [{"detection_type": "risk", "detection": "Yes", "score": 0.9}]
    judge = slow(_factory(session, stub.url, kind=DetectorKind.CHAT))
    context = DetectionContext(messages=b'[{"role":"user","content":"Hi"}]', tools=b'[{"type":"function"}]')
    output = DetectionContext(messages=context.messages, tools=context.tools, replies=(b'{"tool_calls":[1]}',))
    ((found,),) = await judge.judge([""], output)
    assert (found.name, found.start) == ("Yes", None)
    assert stub.requests[0].path == "/api/v1/text/chat"
    assert stub.requests[0].body == {
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": None, "tool_calls": [1]}],
        "detector_params": {},
        "tools": [{"type": "function"}],
    }
    request = DetectionContext(Direction.INPUT, messages=context.messages)
    assert [len(detections) for detections in await judge.judge(["old", "new"], request)] == [0, 1]
    assert stub.requests[1].body == {"messages": [{"role": "user", "content": "Hi"}], "detector_params": {}}
    with pytest.raises(DetectorFailed, match="conversation"):
        await judge.judge(["x"], DetectionContext())


async def test_passages_urls_and_prompts_reach_the_server(
    stub: DetectorStub, session: aiohttp.ClientSession
) -> None:
    """Passages, URLs and prompts are in the fields of the API. Without the prompt or the conversation, the detector
    fails.
    """
    stub.flat = [{"detection_type": "risk", "detection": "Yes", "score": 0.9, "start": None, "text": None}]
    context = slow(_factory(session, stub.url, kind=DetectorKind.CONTEXT_DOC))
    await context.judge(["answer"], DetectionContext(passages=("p",)))
    await context.judge(["answer"], DetectionContext(passages=("http://x",), urls=True))
    generation = slow(_factory(session, stub.url, kind=DetectorKind.GENERATION))
    assert len((await generation.judge(["answer"], DetectionContext(prompt="question")))[0]) == 1
    own: dict[str, Any] = {"detector_params": {}}
    assert [(request.path, request.body) for request in stub.requests] == [
        ("/api/v1/text/context/doc", {"content": "answer", "context_type": "docs", "context": ["p"], **own}),
        ("/api/v1/text/context/doc", {"content": "answer", "context_type": "url", "context": ["http://x"], **own}),
        ("/api/v1/text/generation", {"prompt": "question", "generated_text": "answer", **own}),
    ]  # fmt: skip
    chat = slow(_factory(session, stub.url, kind=DetectorKind.CHAT))
    for judge, needed in ((generation, "prompt"), (chat, "conversation")):
        with pytest.raises(DetectorFailed, match=needed) as raised:
            await judge.judge(["x"], DetectionContext())
        assert raised.value.status == 422


async def test_only_allowed_headers_are_passed_on(stub: DetectorStub, session: aiohttp.ClientSession) -> None:
    """Only the allowed headers of the caller are passed on."""
    judge = slow(_factory(session, stub.url, headers=frozenset(["x-request-id"])))
    await judge.judge(["x"], DetectionContext(headers={"x-request-id": "7", "authorization": "Bearer x"}))
    assert stub.requests[0].headers["x-request-id"] == "7"
    assert "authorization" not in stub.requests[0].headers


def _span(**values: Any) -> bytes:
    result = {"start": 0, "end": 1, "text": "x", "detection_type": "t", "detection": "d", "score": 1.0} | values
    return msgspec.json.encode([[result]])


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{", "does not follow the detector API"),
        (b"[[{}]]", "does not follow the detector API"),
        (b'[[{"metadata":"\xff"}]]', "does not follow the detector API"),
        (_span(metadata="x").replace(b'"x"}', b'"\xff"}'), "does not follow the detector API"),
        (b'[[{"x":' + b"[" * 50_000, "does not follow the detector API"),
        (b"[]", "one list for each text"),
        (_span(end=6), "outside the text"),
        (_span(start=-1), "outside the text"),
        (_span(start=3, end=2), "outside the text"),
        (_span(end=None), "without a start or an end"),
        (b" " * (9 * 1024 * 1024), "too long"),
    ],
)
async def test_an_invalid_answer_is_a_failure(
    stub: DetectorStub, session: aiohttp.ClientSession, raw: bytes, message: str
) -> None:
    """An invalid answer, or an answer with spans outside the text, is a failure and not a detection."""
    stub.raw = raw
    with pytest.raises(DetectorFailed, match=message) as raised:
        await slow(_factory(session, stub.url)).judge(["short"], DetectionContext())
    assert str(raised.value).startswith("detector request failed for `hap`: ")
    assert raised.value.status == 502


async def test_an_empty_span_means_the_whole_text(stub: DetectorStub, session: aiohttp.ClientSession) -> None:
    """An empty span means the whole text. Such a finding has no span, so it cannot be redacted."""
    stub.raw = _span(start=0, end=0)
    ((found,),) = await slow(_factory(session, stub.url)).judge(["short"], DetectionContext())
    assert (found.start, found.end) == (None, None)


@pytest.mark.parametrize("status", [400, 422, 429, 500, 503])
async def test_errors_keep_their_status(stub: DetectorStub, session: aiohttp.ClientSession, status: int) -> None:
    """A server's refusal is a failure with the server's status and message."""
    stub.status = status
    with pytest.raises(DetectorFailed, match=r"^detector request failed for `hap`: a scripted failure$") as raised:
        await slow(_factory(session, stub.url)).judge(["x"], DetectionContext())
    assert raised.value.status == status


async def test_a_refused_connection_fails_quickly(session: aiohttp.ClientSession) -> None:
    """A refused connection fails quickly, and the detector is unhealthy."""
    (port,) = free_ports(1)
    factory = _factory(session, f"http://127.0.0.1:{port}")
    with pytest.raises(DetectorFailed, match="cannot be reached") as raised:
        await slow(factory).judge(["x"], DetectionContext())
    assert raised.value.status == 503
    assert not (await factory.health()).healthy


async def test_a_server_that_exceeds_the_time_limit_is_a_failure(
    stub: DetectorStub, session: aiohttp.ClientSession
) -> None:
    """A server that does not answer in time is a failure with status 504, and its call ends."""
    stub.gate.clear()
    rule = Rule("hap", slow(_factory(session, stub.url, seconds=0.2)), Action.REPORT, OnError.BLOCK, "")
    with pytest.raises(DetectorFailed, match=r"longer than 0.2 s") as raised:
        await call_judge(rule, [Window(0, "x")], DetectionContext())
    assert raised.value.status == 504
    await eventually(lambda: stub.cancelled == 1)


async def test_a_closed_connection_is_retried_once(stub: DetectorStub, session: aiohttp.ClientSession) -> None:
    """If the server closes a connection without an answer, the client sends the request once more."""
    judge = slow(_factory(session, stub.url))
    stub.drops = 1
    assert await judge.judge(["x"], DetectionContext()) == [[]]
    stub.drops = 2
    with pytest.raises(DetectorFailed):
        await judge.judge(["x"], DetectionContext())


async def test_concurrent_requests_are_limited(stub: DetectorStub, session: aiohttp.ClientSession) -> None:
    """At most the configured number of calls runs at the same time."""
    factory = _factory(session, stub.url, concurrency=2)
    stub.gate.clear()
    tasks = [asyncio.create_task(slow(factory).judge(["x"], DetectionContext())) for _ in range(6)]
    await eventually(lambda: stub.running == 2)
    stub.gate.set()
    await asyncio.gather(*tasks)
    assert (stub.max_running, len(stub.requests)) == (2, 6)


async def test_a_cancelled_request_ends_at_the_server(stub: DetectorStub, session: aiohttp.ClientSession) -> None:
    """A cancelled request also ends at the server."""
    stub.gate.clear()
    task = asyncio.create_task(slow(_factory(session, stub.url)).judge(["x"], DetectionContext()))
    await eventually(lambda: stub.running == 1)
    task.cancel()
    await eventually(lambda: stub.cancelled == 1)


async def test_the_list_describes_a_remote_detector(stub: DetectorStub, session: aiohttp.ClientSession) -> None:
    """The list describes a remote detector and the health that its server reports."""
    factory = _factory(session, stub.url, kind=DetectorKind.CHAT)
    assert (factory.info().kind, factory.info().remote) == (DetectorKind.CHAT, True)
    assert (await factory.health()).healthy
    stub.status = 503
    assert (await factory.health()).reason == "its server answered with status 503"
