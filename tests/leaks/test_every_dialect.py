"""Secrets in the answers of every dialect of the whole gateway with the real guardrails service.

The only exception from redaction is the name of a passage that the answer cites as ``[name]``.

With CAUSEWAY_LEAKS=all, which `make test-leaks` sets, the tests try every single cut inside each secret. Otherwise
they try one cut. They always try one token for each character.
"""

import asyncio
import contextlib
import itertools
import json
import logging
import os
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import httpx
import msgspec
import pytest
import pytest_asyncio
import structlog
from causeway.guardrails.v1 import guardrails_pb2, guardrails_pb2_grpc
from causeway_testing.gateway.answering import FakeGenerator
from causeway_testing.gateway.application import FakeResponses
from causeway_testing.gateway.records import FakeRecords
from causeway_testing.gateway.response_log import FakeResponseLog
from causeway_testing.gateway.retrieval import FakeRetriever
from causeway_testing.guardrails.fake import ScriptedJudge
from causeway_testing.servers import grpc_service
from detection.detectors.ban_substrings import ban_substrings
from detection.detectors.factory import BuiltIn
from detection.detectors.params import Params
from detection.detectors.patterns.matching import Limits
from detection.detectors.regex import regex
from detection.domain import DetectorKind
from detection.moderation.catalogue import Catalogue
from detection.moderation.thread_pool import ThreadPool
from detection.shared import JudgingLimits
from embedding.port import Embedder
from gateway.adapters import Services
from gateway.clients.guardrails import GrpcGuardrails
from gateway.dialects.rag_chat.registration import Stages
from gateway.dialects.registry import registrations
from gateway.domain import Completion, Delta, Finish, Passage, Start, Usage
from gateway.frontends.profiles_file import FrontendsFile
from gateway.identity.content_sealing import ContentKeys
from gateway.main import build_app
from gateway.settings import Settings
from guardrails.detectors.groundedness.detector import groundedness
from guardrails.detectors.secrets import secrets
from guardrails.servicer import GuardrailsServicer
from servicekit.errors import UpstreamRejected
from servicekit.principal import Principal
from starlette.types import ASGIApp, Message

pytestmark = pytest.mark.asyncio(loop_scope="module")
ALL = os.environ.get("CAUSEWAY_LEAKS") == "all"
MESSAGE = "The harbour office cannot say."
BEFORE, AFTER = "Nothing of note, then ", " and so on."
SECRETS = ["123-45-6789", "4111111111111111", "ann@kelp.org", "AKIAIOSFODNN7EXAMPLE", "project tern"]
DETECTORS = """
      - {id: regex, action: ACTION, params: {regex: [us-social-security-number, credit-card, email]}}
      - {id: secrets, action: ACTION}
      - {id: ban_substrings, action: ACTION, params: {substrings: [project tern]}}
"""
ACTIONS = ("report", "redact", "block")
PROFILES = (
    "policies:"
    + "".join(
        f"\n  {each}:\n    blocked_message: {MESSAGE}"
        f"\n    input: {DETECTORS.replace('ACTION', each)}\n    output: {DETECTORS.replace('ACTION', each)}"
        for each in ACTIONS
    )
    + "\nfrontends:"
    + "".join(
        f"\n  - {{name: {each}, mount: {each}, policy: {each}, allow: {{indexes: any, models: any}}}}"
        for each in ACTIONS
    )
)
PASSAGE = Passage("p", "docs", "d", "a.md", "a.md", "What the harbour knows.", 1.0, dense_score=0.9)
ASKED = [{"role": "user", "content": "What do you know?"}]


@dataclass(frozen=True)
class Way:
    """A route with its form of a request."""

    path: str
    stream: bool
    more: tuple[tuple[str, Any], ...] = ()

    @property
    def orchestrator(self) -> bool:
        """Whether it is a route of the guardrails orchestrator."""
        return self.path.startswith("/api/v2/")

    @property
    def text(self) -> bool:
        """Whether the request is a prompt and the answer a text."""
        return self.path.startswith("/api/v2/text/") or self.path == "/v1/completions"

    @property
    def responses(self) -> bool:
        """Whether it is a route of the Responses API."""
        return self.path.startswith("/v1/responses")

    @property
    def openai(self) -> bool:
        """Whether answers have OpenAI's form, and the body of a request has its detectors."""
        return self.orchestrator or self.path.startswith(("/v1/", "/openai/"))

    def detecting(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the members of a body that ask for detectors."""
        return {"detectors": asked} if self.openai else {"context": {"overrides": {"detectors": asked}}}

    def body(self, messages: list[dict[str, str]], more: dict[str, Any]) -> dict[str, Any]:
        """Return a request with these messages."""
        if self.responses:
            return {"input": [item for each in messages for item in items_of(each)], **dict(self.more), **more}
        text = self.path.startswith(("/api/v2/text/", "/v1/completions"))
        said = {"prompt": messages[-1]["content"]} if text else {"messages": messages}
        return {**said, **dict(self.more), **more}


def items_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a message of a chat as items of a Responses request."""
    calls = message.get("tool_calls", ())
    if message["role"] == "tool":
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}]
    said = message["content"]
    if isinstance(said, list):
        said = [{"type": "input_text", "text": part["text"]} for part in said]
    spoken = [{"role": message["role"], "content": said}] if said else []
    return [*spoken, *({"type": "function_call", "call_id": each["id"], **each["function"]} for each in calls)]


def ways() -> list[Way]:
    found = [
        Way(path, stream, (("stream", stream), *index))
        for path in (
            "/v1/chat/completions",
            "/v1/completions",
            "/openai/deployments/m/chat/completions",
            "/v1/responses",
        )
        for stream in (False, True)
        for index in ((), (("index_name", "docs"),))
    ]
    found += [
        Way(f"/api/v2/{path}/completions-detection", stream, (("model", "m"), ("stream", stream), *index))
        for stream in (False, True)
        for path, index in (("chat", ()), ("chat", (("index_name", "docs"),)), ("text", ()))
    ]
    for path in Stages().fixed():
        if path.endswith("/stream"):
            found.append(Way(path, stream=True))
        elif path.startswith(("/2024-01/", "/2024-01-28/")):
            found += [Way(path, stream, (("stream", stream),)) for stream in (False, True)]
        else:
            found.append(Way(path, stream=False))
    return found


def everywhere() -> list[Way]:
    """Return all routes, including those that only some tests can read."""
    return [*ways(), GENERATION, COMPACTION]


@dataclass
class World:
    """The gateway, and the model behind it."""

    app: ASGIApp
    generator: FakeGenerator
    retriever: FakeRetriever
    responses: FakeResponses
    keys: ContentKeys

    async def asks(self, way: Way, mount: str, tokens: Sequence[str], **more: Any) -> tuple[int, bytes]:
        """Return the status and the bytes of the answer if the model says these tokens."""
        script: list[Any] = [[Start(b'{"id":"x","model":"m"}')], *([Delta(0, token)] for token in tokens)]
        return await self.answers(way, mount, [*script, [Finish(0, "stop"), Usage(1, 1)]], **more)

    async def answers(self, way: Way, mount: str, script: list[Any], **more: Any) -> tuple[int, bytes]:
        """Return the status and the bytes of the answer if the model server sends these events."""
        self.generator.script = script
        body = json.dumps(way.body(more.pop("messages", ASKED), more)).encode()
        scope = {
            "type": "http",
            "http_version": "1.1",
            "scheme": "http",
            "method": "POST",
            "path": f"/{mount}{way.path}",
            "raw_path": b"",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
            "state": {},
        }
        requests = iter([{"type": "http.request", "body": body}])
        status, pieces = 0, []

        async def receive() -> Message:
            if (request := next(requests, None)) is not None:
                return request
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            pieces.append(message.get("body", b""))

        await self.app(scope, receive, send)
        return status, b"".join(pieces)


async def _no_embedder() -> Embedder:
    raise AssertionError("there is nothing to embed")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Start a gateway with a real guardrails service."""
    tmp_path = tmp_path_factory.mktemp("front-ends")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    workers = ThreadPool(1)
    grounded = groundedness(_no_embedder, 1.0)
    relevance = BuiltIn(
        "relevance",
        "",
        Params,
        lambda _: ScriptedJudge("?", kind=DetectorKind.GENERATION),
        kind=DetectorKind.GENERATION,
    )
    catalogue = Catalogue([regex(Limits()), secrets(Limits()), ban_substrings(Limits()), grounded, relevance], 16)
    servicer = GuardrailsServicer(catalogue, workers, JudgingLimits(100_000))
    service = guardrails_pb2.DESCRIPTOR.services_by_name["GuardrailsService"]
    (tmp_path / "frontends.yaml").write_text(PROFILES)
    async with contextlib.AsyncExitStack() as stack:
        channel = await stack.enter_async_context(
            grpc_service(
                service, lambda to: guardrails_pb2_grpc.add_GuardrailsServiceServicer_to_server(servicer, to)
            )
        )
        generator = FakeGenerator()
        retriever = FakeRetriever({"docs": [PASSAGE]})
        # The chats call no other services than these.
        others = {each.name: object() for each in fields(Services) if each.default is each.default_factory}
        known = {
            "retriever": retriever,
            "generator": generator,
            "guardrails": GrpcGuardrails(channel),
            "records": FakeRecords(),
            "responses": (stored := FakeResponses()),
            "response_log": FakeResponseLog(),
            "frontends": FrontendsFile(tmp_path / "frontends.yaml"),
            "content_keys": (keys := ContentKeys.of(b"c" * 32)),
        }
        services = Services(**cast("Any", others | known))
        yield World(build_app(Settings(default_index="docs"), services), generator, retriever, stored, keys)
    workers.close()
    structlog.reset_defaults()


def objects(way: Way, body: bytes) -> list[Any]:
    """Return the JSON objects of an answer, which must be complete."""
    if not way.stream:
        return [json.loads(body)]
    text = body.decode()
    if way.responses:
        *events, rest = text.split("\n\n")
        assert rest == ""
        return [json.loads(event.partition("\ndata: ")[2]) for event in events]
    if way.openai:
        *events, done, rest = text.split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return [json.loads(event.removeprefix("data: ")) for event in events]
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def shown(way: Way, body: bytes) -> str:
    """Return the text that the client shows."""
    texts = []
    for each in objects(way, body):
        if way.responses:
            texts.append(text_of_response(way, each))
            continue
        assert "error" not in each
        inside = each["choices"][0] if each.get("choices") else each
        piece = inside.get("delta", inside.get("message", inside.get("output_text", inside.get("text", {}))))
        texts.append(piece if isinstance(piece, str) else piece.get("content") or "")
    return "".join(texts)


def text_of_response(way: Way, said: Any) -> str:
    """Return the text of a complete response, or of an event."""
    if way.stream:
        return said["delta"] if said["type"] == "response.output_text.delta" else ""
    assert said["error"] is None
    parts = (part for item in said["output"] if item["type"] == "message" for part in item["content"])
    return "".join(part["text"] for part in parts)


def ends(way: Way, body: bytes) -> set[str]:
    """Return the reasons for the end of the answer, from finish reasons or the last thoughts."""
    said = set()
    if way.responses:
        last = objects(way, body)[-1]
        last = last["response"] if way.stream else last
        return {(last["incomplete_details"] or {}).get("reason", "stop")}
    for each in objects(way, body):
        inside = each["choices"][0] if each.get("choices") else each
        said |= {inside.get("finish_reason")} if isinstance(inside.get("finish_reason"), str) else set()
        context = inside.get("context") or inside.get("message", {}).get("context") or {}
        said |= {each["description"] for each in context.get("thoughts", ()) if each["title"] == "Answer"}
    return said


def tokens(secret: str) -> list[list[str]]:
    """Return the answer in one token for each character, and in two tokens for each cut inside the secret."""
    at = [len(BEFORE) + cut for cut in range(1, len(secret))]
    text = BEFORE + secret + AFTER
    cuts = at if ALL else at[len(at) // 2 :][:1]
    return [list(text), *([text[:cut], text[cut:]] for cut in cuts)]


def name_of(parameter: Way | str) -> str:
    """Return the id of a test's parameter."""
    if isinstance(parameter, str):
        return parameter
    return f"{parameter.path} {'stream' if parameter.stream else 'unary'} {dict(parameter.more)}"


def over(found: Sequence[Way]) -> pytest.MarkDecorator:
    """Parametrize a test with these routes."""
    return pytest.mark.parametrize("way", found, ids=name_of)


WAYS = over(ways())


# Its answers are unary and have no choices. Each request names a detector of generations.
GENERATION = Way(
    "/api/v2/text/generation-detection", stream=False, more=(("model_id", "m"), ("detectors", {"relevance": {}}))
)

# Its answers contain no readable text of the model.
COMPACTION = Way("/v1/responses/compact", stream=False, more=(("model", "m"),))


async def test_every_chat_route_is_in_the_matrix() -> None:
    """These tests cover every registered dialect."""
    shared = set(Stages().bare())  # paths that several versions share
    registered = {chat.path.replace("{model:path}", "m") for dialect in registrations() for chat in dialect.chats}
    assert registered - shared == {way.path for way in everywhere()}


@WAYS
@pytest.mark.timeout(600)
async def test_nothing_leaks(world: World, way: Way) -> None:
    """With the action report the answer is complete, with redact it has no secret, and with block it ends before
    the secret in a valid form.
    """
    for secret, mount in itertools.product(SECRETS, ACTIONS):
        for said in tokens(secret):
            status, body = await world.asks(way, mount, said)
            assert status == 200, body
            text = shown(way, body)
            if mount == "report":
                assert text == BEFORE + secret + AFTER, (secret, said)
            elif mount == "redact":
                assert text == BEFORE + "[REDACTED]" + AFTER, (secret, said)
            else:
                assert text.endswith(MESSAGE), (secret, said, body)
                assert BEFORE.startswith(text.removesuffix(MESSAGE)), (secret, said)
            assert ends(way, body) == {"content_filter" if mount == "block" else "stop"}
            assert (secret.encode() in body) is (mount == "report"), "in a member besides the text"


@pytest.mark.parametrize(
    "way",
    [each for each in ways() if each.path.startswith("/20") or "index_name" in dict(each.more)],
    ids=lambda way: f"{way.path} {'stream' if way.stream else 'unary'}",
)
async def test_a_cited_name_still_opens(world: World, way: Way) -> None:
    """A redaction leaves the cited name of a passage of the answer, and nothing that only looks like one."""
    page = "ann@kelp.org.pdf#page=2"
    there = world.retriever.indexes["docs"]
    world.retriever.indexes["docs"] = [replace(PASSAGE, sourcefile="ann@kelp.org.pdf", sourcepage=page)]
    try:
        for said in (f"[{page}]", f"[bob@kelp.org.pdf#page=2][{page}]", f"ann@kelp.org [{page}]"):
            text = BEFORE + said + AFTER
            expected = text.replace("bob@kelp.org.pdf", "[REDACTED]").replace("ann@kelp.org ", "[REDACTED] ")
            for pieces in ([text], list(text)):
                status, body = await world.asks(way, "redact", pieces)
                assert (status, shown(way, body)) == (200, expected)
    finally:
        world.retriever.indexes["docs"] = there


@WAYS
async def test_a_reporting_detector_reveals_no_redacted_text(world: World, way: Way) -> None:
    """A reporting detector of the client does not reveal the text that the profile's detector replaces."""
    asked = {"output": {"regex": {"regex": ["[0-9]", "then [0-9-]+ and", "note"]}}}
    pieces = [BEFORE, "123-45", "-6789", AFTER]
    status, body = await world.asks(way, "redact", pieces, **way.detecting(asked))
    assert (status, shown(way, body)) == (200, BEFORE + "[REDACTED]" + AFTER)
    found = [result for each in objects(way, body) for result in results(each)]
    said = {(each["detection"], each["text"]) for each in found}
    assert said == {("social_security_number", "[REDACTED]"), ("custom_regex", "note")}


def results(each: Any) -> list[Any]:
    """Return the findings in an object's output."""
    each = each.get("response", each)
    inside = each["choices"][0] if each.get("choices") else each
    context = inside.get("context") or inside.get("message", {}).get("context") or each
    found = context.get("detections", {}).get("output", ())
    return [result for choice in found for result in choice["results"]]


@WAYS
@pytest.mark.parametrize("action", ACTIONS)
async def test_what_a_request_asks_for(world: World, way: Way, action: str) -> None:
    """The ``detectors`` of a request work like a profile's policy, for answers and for questions."""
    detector = {"ban_substrings": {"substrings": ["project tern"], "action": action}}

    status, body = await world.asks(
        way, "report", [BEFORE, "project", " ter", "n", AFTER], **way.detecting({"output": detector})
    )
    expected = {"report": "project tern", "redact": "[REDACTED]", "block": ""}[action]
    tail = MESSAGE if action == "block" else AFTER
    # The orchestrator's routes release complete sentences.
    begin = "" if way.orchestrator and action == "block" else BEFORE
    assert (status, shown(way, body)) == (200, begin + expected + tail)
    asked = [{"role": "user", "content": "Where is project tern?"}]
    world.generator.prompts.clear()
    status, body = await world.asks(way, "report", ["Here."], **way.detecting({"input": detector}), messages=asked)
    if action == "block":
        said = "" if way.orchestrator else MESSAGE
        assert (status, shown(way, body), world.generator.prompts) == (200, said, [])
    else:
        assert shown(way, body) == "Here."
        [prompt] = world.generator.prompts
        assert ("project tern" in str(prompt)) is (action == "report")


@WAYS
@pytest.mark.parametrize("allow", [True, False])
async def test_a_detector_that_fails(world: World, way: Way, allow: bool) -> None:
    """``on_error`` decides whether the answer is blocked or goes on with a warning. No text is released without the
    warning.
    """
    # The text exceeds the detector's limit of held text, also in a unary answer.
    detector = {"regex": {"regex": ["xx*y"], "action": "block", "on_error": "allow" if allow else "block"}}
    said = ["Then ", *["x" * 1000] * 40]
    status, body = await world.asks(way, "report", said, **way.detecting({"output": detector}))
    if way.orchestrator and not allow:
        # These routes answer with a status.
        assert (status, json.loads(body)["code"], b"Then" in body, b"xx" in body) == (500, 500, False, False)
        return
    assert status == 200
    if allow:
        assert shown(way, body) == "".join(said)
    else:
        assert shown(way, body) == "Then " + MESSAGE
        assert ends(way, body) == {"content_filter"}
    assert b"DETECTOR_ERROR" in body


@WAYS
@pytest.mark.parametrize(
    ("action", "on_error", "blocks"),
    [("report", "block", False), ("block", "allow", False), ("block", "block", True)],
)
async def test_an_answer_without_passages(world: World, way: Way, action: str, on_error: str, blocks: bool) -> None:
    """A comparing detector is not called without passages, and the answer says so. The answer is blocked if the
    detector protects it.
    """
    more = way.detecting({"output": {"groundedness": {"action": action, "on_error": on_error}}})
    world.retriever.indexes["docs"] = []
    try:
        status, body = await world.asks(way, "report", ["Every nine", " years. Or ten."], **more)
    finally:
        world.retriever.indexes["docs"] = [PASSAGE]
    if way.orchestrator and (blocks or "index_name" not in dict(way.more)):
        # These routes refuse the detector without an index.
        said = "no passages" if "index_name" in dict(way.more) else "not supported by this endpoint"
        assert (status, said in body.decode(), b"nine" in body) == (422, True, False)
        return
    assert (status, shown(way, body)) == (200, MESSAGE if blocks else "Every nine years. Or ten.")
    assert ends(way, body) == {"content_filter" if blocks else "stop"}
    assert body.count(b"DETECTOR_NOT_ASKED") == 1
    assert b"DETECTOR_ERROR" not in body


STAGES = pytest.mark.parametrize(
    "way", [way for way in ways() if not way.openai], ids=lambda way: f"{way.path} {way.stream}"
)


@STAGES
@pytest.mark.parametrize("mount", ["redact", "block"])
async def test_follow_ups_and_queries_are_judged(world: World, way: Way, mount: str) -> None:
    """The detectors also judge follow-up questions and search queries of the model."""
    context = {"overrides": {"suggest_followup_questions": True, "query_rewriting": True}}
    messages = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ann."}, *ASKED]
    if not way.path.endswith("/ask"):
        # The model rewrites no query without an earlier turn.
        world.generator.scripts.append(FakeGenerator.words("owner of ", SECRETS[0]))
    said = ["Yes.", "\n<<Is 123-4", "5-6789 hers?>>", "<<When?>>"]
    status, body = await world.asks(way, mount, said, context=context, messages=messages)
    assert status == 200
    assert not world.generator.scripts
    assert SECRETS[0].encode() not in body
    assert (b"Is [REDACTED] hers?" in body) is (mount == "redact")
    assert (b"When?" in body) is (mount == "redact")


# --- the matrix: dialect x stream or unary x place or role x action -----------------------------------------------

EVERYWHERE = over(everywhere())
SECRET = SECRETS[0]
START = Start(b'{"id":"x","model":"m"}')
END: list[Any] = [Finish(0, "stop"), Usage(1, 1)]


def beside(members: dict[str, Any]) -> Delta:
    """Return an event with members of the delta."""
    return Delta(0, "", json.dumps(members).encode())


def called(arguments: str) -> Delta:
    """Return an event with the next piece of a tool call's arguments."""
    return beside({"tool_calls": [{"index": 0, "function": {"name": "find", "arguments": arguments}}]})


def alternative(token: str) -> Delta:
    """Return a word with a token among its log probabilities."""
    probable = {"token": " yes", "top_logprobs": [{"token": token, "bytes": [ord(token)]}]}
    return Delta(0, " yes", b"", json.dumps({"logprobs": {"content": [probable]}}).encode())


def halves(text: str) -> tuple[str, str]:
    """Cut a text inside the secret."""
    at = text.index(SECRET) + 4
    return text[:at], text[at:]


def completion(message: dict[str, Any], **more: Any) -> list[Any]:
    """Return the events of a unary answer of the model server."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "Yes.", **message}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return [[Completion(json.dumps({"id": "x", "choices": [choice], "usage": usage, **more}).encode())]]


ARGUMENTS = json.dumps({"who": f"the {SECRET}", "n": 4111111111111111})
ESCAPED = ARGUMENTS.replace("-", "\\u002d")
NESTED = json.dumps({"inner": ARGUMENTS})
CALL = {"id": "c", "type": "function", "function": {"name": "find", "arguments": ARGUMENTS}}

PLACES: dict[str, list[Any]] = {
    "text": [[START], *([Delta(0, each)] for each in halves(f"It is {SECRET}.")), END],
    "content in parts": [[START], [beside({"content": [{"type": "text", "text": f"It is {SECRET}."}]})], END],
    "tool arguments": [[START], *([called(each)] for each in halves(ARGUMENTS)), END],
    "escaped tool arguments": [[START], [called(ESCAPED)], END],
    "nested tool arguments": [[START], [called(NESTED)], END],
    "function arguments": [[START], [beside({"function_call": {"name": "f", "arguments": ARGUMENTS}})], END],
    "custom tool": [[START], [beside({"tool_calls": [{"index": 0, "custom": {"input": SECRET}}]})], END],
    "reasoning": [[START], *([beside({"reasoning_content": each})] for each in halves(f"Hm, {SECRET}.")), END],
    "refusal": [[START], *([beside({"refusal": each})] for each in halves(f"No {SECRET}.")), END],
    "delta member": [[START], [beside({"annotations": [{"title": SECRET}]}), Delta(0, "Yes.")], END],
    "top-level member": [[Start(json.dumps({"id": "x", "citations": [SECRET]}).encode())], [Delta(0, "Yes.")], END],
    "split over members": [
        [Start(json.dumps({"id": "x", "citations": list(halves(SECRET))}).encode())],
        [Delta(0, "Yes.")],
        END,
    ],
    "name of a member": [[Start(json.dumps({"id": "x", SECRET: 1}).encode())], [Delta(0, "Yes.")], END],
    "choice member": [[START], [Delta(0, "Yes.", b"", json.dumps({"note": SECRET}).encode())], END],
    "finish member": [[START, Delta(0, "Yes.")], [Finish(0, "stop", json.dumps({"note": SECRET}).encode())]],
    "usage": [
        [START, Delta(0, "Yes."), Finish(0, "stop")],
        [Usage(1, 1, json.dumps({"prompt_tokens": 1, "completion_tokens": 1, "note": SECRET}).encode())],
    ],
    "log probabilities": [
        [START, Delta(0, "Yes.", b"", json.dumps({"logprobs": {"content": [{"token": SECRET}]}}).encode())],
        END,
    ],
    "what could have been said": [[START], *([alternative(each)] for each in SECRET), END],
    "error text": [UpstreamRejected("refused", status=400, body=json.dumps({"error": {"message": SECRET}}))],
    "plain error text": [UpstreamRejected("refused", status=503, body=f"no {SECRET}")],
    "error in a stream": [
        [START, Delta(0, "Yes. And so ")],
        UpstreamRejected("refused", status=500, body=json.dumps({"error": {"message": SECRET}})),
    ],
    "whole text": completion({"content": f"It is {SECRET}."}),
    "whole parts": completion({"content": [{"type": "text", "text": each} for each in halves(SECRET)]}),
    "whole tool arguments": completion({"tool_calls": [CALL]}),
    "whole reasoning": completion({"reasoning_content": SECRET}),
    "whole refusal": completion({"content": None, "refusal": SECRET}),
    "whole citations": completion({}, citations=[SECRET]),
    "whole usage": completion({}, usage={"prompt_tokens": 1, "completion_tokens": 1, "note": SECRET}),
    "follow-up": [[START], [Delta(0, f"Yes.\n<<Is it {SECRET}?>>")], END],
    "put together by a follow-up": [[START], [Delta(0, SECRET[:5] + "<<Why?>>" + SECRET[5:])], END],
}
FOLLOWED = ("follow-up", "put together by a follow-up")


def texts_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield all names, strings and numbers in a JSON value, and those in strings that are JSON themselves."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield (*path, name, "name"), name
            yield from texts_of(each, (*path, name))
    elif isinstance(value, list):
        for at, each in enumerate(value):
            yield from texts_of(each, (*path, at))
    elif isinstance(value, str):
        yield path, value
        with contextlib.suppress(ValueError):
            inner = json.loads(value)
            if isinstance(inner, dict | list):
                yield from texts_of(inner, (*path, "json"))
    elif value is not None and not isinstance(value, bool):
        yield path, json.dumps(value)


def readable(way: Way, body: bytes) -> list[str]:
    """Return everything that a client can read: each text of an answer, and the joined pieces of a stream."""
    lines = body.decode().splitlines() if way.stream else [body.decode()]
    grown: dict[tuple[Any, ...], str] = {}
    found: list[str] = []
    for line in lines:
        said = line.removeprefix("data: ")
        if not said or said == "[DONE]" or said.startswith(("event:", ":")):
            continue
        for path, text in texts_of(json.loads(said)):
            found.append(text)
            grown[path] = grown.get(path, "") + text
    for path, text in grown.items():
        found.append(text)
        if path[-1] in ("arguments", "input"):
            with contextlib.suppress(ValueError):
                found += [inner for _, inner in texts_of(json.loads(text))]
    return found


@pytest.mark.parametrize(
    ("way", "place"),
    # Only the RAG chat protocol has follow-up questions.
    [(way, place) for way in everywhere() for place in PLACES if place not in FOLLOWED or not way.openai],
    ids=name_of,
)
@pytest.mark.timeout(600)
async def test_no_place_of_an_answer_has_the_secret(world: World, way: Way, place: str) -> None:
    """With the actions redact and block, the secret is nowhere in the answer, whose JSON stays valid."""
    more = {"context": {"overrides": {"suggest_followup_questions": True}}} if place in FOLLOWED else {}
    for mount in ("redact", "block"):
        _, body = await world.answers(way, mount, PLACES[place], **more)
        assert [text for text in readable(way, body) if SECRET in text or "4111111111111111" in text] == [], mount
        assert body, mount


@pytest.mark.parametrize(
    ("way", "place"),
    [
        (way, place)
        for way in ways()
        for place in ("tool arguments", "whole tool arguments")
        if way.openai and not (way.text or way.responses or (way.stream and place == "whole tool arguments"))
    ],
    ids=name_of,
)
async def test_a_finding_in_a_tool_call_is_reported(world: World, way: Way, place: str) -> None:
    """A finding in a tool call is in ``detections`` without a position."""
    _, body = await world.answers(way, "block", PLACES[place])
    found = [result for each in objects(way, body) for result in results(each)]
    assert "social_security_number" in {each["detection"] for each in found}
    assert all("start" not in each for each in found)
    assert b"UNSUITABLE_OUTPUT" in body


@pytest.mark.parametrize(
    ("way", "place"),
    [
        (way, place)
        for way in ways()
        for place in ("text", "tool arguments", "reasoning", "top-level member", "error text")
        if way.openai
        and not (way.path == "/v1/completions" and place in ("tool arguments", "reasoning"))
        and not (way.responses and place == "top-level member")
    ],
    ids=name_of,
)
async def test_what_only_reports_changes_nothing(world: World, way: Way, place: str) -> None:
    """Detectors that only report do not remove the secret from the answer."""
    _, body = await world.answers(way, "report", PLACES[place])
    assert any(SECRET in text for text in readable(way, body))


OWN = {
    "role": "assistant",
    "content": None,
    "refusal": f"No {SECRET}.",
    "audio": None,
    "tool_calls": [{"index": 0, **CALL}],
    "annotations": [],
}


@over([way for way in everywhere() if way.openai and not way.stream and not way.responses])
async def test_an_answer_in_one_piece_is_the_model_servers_own(world: World, way: Way) -> None:
    """A unary request asks the model server for no stream, and reporting detectors change no part of its answer."""
    content = [{"type": "text", "text": each} for each in halves(SECRET)]
    for message in (OWN, OWN | {"content": content}):
        said = completion(message, vendor=None)
        if way.text and way.path.startswith("/api/"):
            said = [
                [Completion(json.dumps({"choices": [{"index": 0, "text": SECRET, "logprobs": None}]}).encode())]
            ]
        world.generator.prompts.clear()
        _, body = await world.answers(way, "report", said)
        [prompt] = world.generator.prompts
        assert (prompt.in_one_piece, prompt.passthrough_json) == (True, b"")
        [event] = said[0]
        own, answered = json.loads(event.raw_json), json.loads(body)
        if way == GENERATION:
            assert answered["generated_text"] == SECRET
        elif way.path == "/v1/completions":
            assert answered["choices"][0]["text"] == ("" if message is OWN else SECRET)
            assert answered["usage"] == own["usage"]
        else:
            assert {name: answered[name] for name in own} == own


SAID: dict[str, dict[str, Any]] = {
    role: {"messages": [{"role": role, "content": f"It is {SECRET}."}, *ASKED]} for role in ("system", "developer")
}
SAID |= {
    "user": {"messages": [{"role": "user", "content": f"Is it {SECRET}?"}]},
    "tool": {
        "messages": [
            *ASKED,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{**CALL, "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": SECRET},
        ]
    },
    "function": {"messages": [*ASKED, {"role": "function", "name": "f", "content": SECRET}]},
    "earlier assistant": {"messages": [*ASKED, {"role": "assistant", "content": SECRET}, *ASKED]},
    "earlier call": {
        "messages": [
            *ASKED,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c", "content": "found"},
        ]
    },
    "final assistant": {"messages": [*ASKED, {"role": "assistant", "content": SECRET}]},
    "two parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": t} for t in halves(SECRET)]}]},
    "prediction": {"prediction": {"type": "content", "content": SECRET}},
    "documents": {"documents": [{"text": SECRET}]},
    "tools": {"tools": [{"type": "function", "function": {"name": "f", "description": SECRET}}]},
    "prompt": {"context": {"overrides": {"prompt_template": f"Say {SECRET}."}}},
}


@EVERYWHERE
@pytest.mark.parametrize("role", SAID)
async def test_the_model_gets_no_secret_of_any_role(world: World, way: Way, role: str) -> None:
    """The model gets no secret of a request in any role. With the action block it is not called."""
    said = SAID["user" if way.text else role]
    for mount in ("redact", "block"):
        world.generator.prompts.clear()
        status, _ = await world.asks(way, mount, ["Yes."], **said)
        prompts = repr(world.generator.prompts).replace("\\n", "")
        assert SECRET not in prompts
        assert "".join(halves(SECRET)) not in prompts
        if role == "user" and way not in (GENERATION, COMPACTION):
            assert (status, bool(world.generator.prompts)) == ((200, mount == "redact"))


@pytest.mark.parametrize("mount", ["redact", "block"])
@pytest.mark.parametrize("said", [*SECRETS], ids=range(len(SECRETS)))
async def test_no_summary_has_a_secret(world: World, said: str, mount: str) -> None:
    """The encrypted summary contains the redacted text. With the action block there is no summary."""
    for tokens_ in tokens(said):
        status, body = await world.asks(COMPACTION, mount, tokens_)
        if mount == "block":
            assert status == 400
            continue
        [item] = [item for item in json.loads(body)["output"] if item["type"] == "compaction"]
        summary = world.keys.unseal(Principal("local"), mount, "compaction", item["encrypted_content"])
        assert json.loads(summary or "")["text"] == (BEFORE + "[REDACTED]" + AFTER).strip()


@over([way for way in everywhere() if way.openai and way != GENERATION])
async def test_members_that_no_detector_reads_are_refused(world: World, way: Way) -> None:
    """With a policy, a request with members that no detector reads is refused, such as a suffix or a template."""
    for name in ("suffix", "chat_template", "prompt_embeds"):
        world.generator.prompts.clear()
        status, _ = await world.asks(way, "redact", ["Yes."], **{name: SECRET})
        # These routes refuse the members in any case.
        refused = 400 if way.responses or (name, way.path) == ("suffix", "/v1/completions") else 403
        assert (status, world.generator.prompts) == (refused, []), name


@pytest.mark.parametrize("mount", ["redact", "block"])
@pytest.mark.parametrize("way", [way for way in ways() if way.responses], ids=lambda way: f"{dict(way.more)}")
async def test_no_response_is_stored_with_a_secret(world: World, way: Way, mount: str) -> None:
    """A stored response contains no secret of the model in any place, or of the request in any role."""
    world.responses.kept.clear()
    for script in PLACES.values():
        await world.answers(way, mount, script)
    for said in SAID.values():
        await world.asks(way, mount, ["Yes."], **said)
    kept = [each for own in world.responses.kept.values() for each in own.values()]
    assert len(kept) > len(PLACES) // 2
    written = [json.loads(msgspec.json.encode([each.object, each.items])) for each in kept]
    texts = [text for each in written for _, text in texts_of(each)]
    assert [text for text in texts if SECRET in text] == []


async def test_no_administrator_reads_a_response(world: World) -> None:
    """An administrator's routes return no texts of responses."""
    world.responses.kept.clear()
    ways_to_store = [way for way in ways() if way.responses]
    for way in ways_to_store:
        await world.asks(way, "report", [SECRET, AFTER], messages=[{"role": "user", "content": SECRET}])
    kept = [each for own in world.responses.kept.values() for each in own.values()]
    assert [SECRET in str([each.object, each.items]) for each in kept] == [True] * len(ways_to_store)
    transport = httpx.ASGITransport(world.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        listed = await client.get("/responses")
        shown = [await client.get(f"/responses/{each.id}") for each in kept]
    assert len(listed.json()["responses"]) == len(kept)
    said = "".join(each.text for each in (listed, *shown))
    assert [text for text in (SECRET, AFTER, PASSAGE.text) if text in said] == []


@over([way for way in everywhere() if not way.text])
async def test_unknown_roles_are_refused(world: World, way: Way) -> None:
    """A message with an unknown role is refused."""
    for role in ("User", "human", "user "):
        world.generator.prompts.clear()
        messages = [{"role": role, "content": SECRET}, *ASKED]
        status, _ = await world.asks(way, "report", ["Yes."], messages=messages)
        assert (status, world.generator.prompts) == (400, [])


# --- the general property -----------------------------------------------------------------------------------------


def invented(chance: random.Random) -> list[Any]:
    """Return a random answer with secrets in random places and pieces."""
    events: list[Any] = []
    for _ in range(chance.randint(1, 5)):
        secret = chance.choice([*SECRETS, "", "12", "3-45"])
        text = chance.choice(["", "a ", "\n", "9", '"']) + secret + chance.choice(["", " b", "-6789", "."])
        cuts = sorted(chance.randint(0, len(text)) for _ in range(chance.randint(0, 3)))
        pieces = [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
        place = chance.choice(["text", "reasoning_content", "refusal", "arguments", "start", "member", "finish"])
        if place == "text":
            events += [Delta(0, piece) for piece in pieces]
        elif place in ("reasoning_content", "refusal"):
            events += [beside({place: piece}) for piece in pieces]
        elif place == "arguments":
            # An answer has only one tool call.
            events += [called(json.dumps({"a": text, "b": pieces}))] if not any(map(_calls, events)) else []
        elif place == "start":
            events.append(Start(json.dumps({"id": "x", "citations": pieces, "note": text}).encode()))
        elif place == "member":
            events.append(Delta(0, chance.choice(["", "and "]), b"", json.dumps({"note": {"x": text}}).encode()))
    finish = Finish(
        0, "stop", json.dumps({"last": chance.choice(SECRETS)}).encode() if chance.random() < 0.3 else b""
    )
    batches: list[Any] = [[START]]
    for event in [*events, finish, Usage(1, 1)]:
        if chance.random() < 0.5:
            batches.append([])
        batches[-1].append(event)
    return batches


def _calls(event: Any) -> bool:
    return isinstance(event, Delta) and b"tool_calls" in event.delta_json


async def test_no_detector_finds_anything_in_a_random_answer(world: World) -> None:
    """With the actions redact and block, no detector finds anything in the texts that a client can read."""
    made = [
        regex(Limits()).make(b'{"regex": ["us-social-security-number", "credit-card", "email"]}'),
        secrets(Limits()).make(b"{}"),
        ban_substrings(Limits()).make(b'{"substrings": ["project tern"]}'),
    ]
    tried = [way for way in ways() if way.openai] if ALL else [way for way in ways() if way.path.startswith("/v1/")]
    for seed in range(1500 if ALL else 60):
        chance = random.Random(seed)
        way, mount = chance.choice(tried), chance.choice(["redact", "block"])
        _, body = await world.answers(way, mount, invented(chance))
        for text in readable(way, body):
            found = [each for one in made for each in cast("Any", one.detector).detect(text)]
            assert found == [], (seed, way, mount, text, body)
