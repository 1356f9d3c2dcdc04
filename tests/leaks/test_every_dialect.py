"""No answer of any dialect contains a secret. The gateway runs with the real guardrails service.

The detectors do not redact the name of a passage that the answer cites as ``[name]``.

With CAUSEWAY_LEAKS=all, which `make test-leaks` sets, the tests split the answer into two tokens at every position
inside each secret. Otherwise they use one position. They always also use one token for each character.
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
QUESTION = [{"role": "user", "content": "What do you know?"}]


@dataclass(frozen=True)
class Route:
    """A route, and the members that each request to it has."""

    path: str
    stream: bool
    members: tuple[tuple[str, Any], ...] = ()

    @property
    def is_orchestrator(self) -> bool:
        """Return whether this is a route of the guardrails orchestrator."""
        return self.path.startswith("/api/v2/")

    @property
    def has_prompt(self) -> bool:
        """Return whether the request has a prompt instead of messages, and the answer has a text."""
        return self.path.startswith("/api/v2/text/") or self.path == "/v1/completions"

    @property
    def is_responses(self) -> bool:
        """Return whether this is a route of the Responses API."""
        return self.path.startswith("/v1/responses")

    @property
    def has_openai_format(self) -> bool:
        """Return whether answers have OpenAI's format, and a request names its detectors at the top of its body."""
        return self.is_orchestrator or self.path.startswith(("/v1/", "/openai/"))

    def with_detectors(self, detectors: dict[str, Any]) -> dict[str, Any]:
        """Return the members of a body that name detectors."""
        return (
            {"detectors": detectors}
            if self.has_openai_format
            else {"context": {"overrides": {"detectors": detectors}}}
        )

    def body(self, messages: list[dict[str, str]], members: dict[str, Any]) -> dict[str, Any]:
        """Return a request body with these messages and further members."""
        if self.is_responses:
            return {
                "input": [item for each in messages for item in items_of(each)],
                **dict(self.members),
                **members,
            }
        text = self.path.startswith(("/api/v2/text/", "/v1/completions"))
        content = {"prompt": messages[-1]["content"]} if text else {"messages": messages}
        return {**content, **dict(self.members), **members}


def items_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a message of a chat as items of a Responses request."""
    calls = message.get("tool_calls", ())
    if message["role"] == "tool":
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}]
    content = message["content"]
    if isinstance(content, list):
        content = [{"type": "input_text", "text": part["text"]} for part in content]
    texts = [{"role": message["role"], "content": content}] if content else []
    return [*texts, *({"type": "function_call", "call_id": each["id"], **each["function"]} for each in calls)]


def routes() -> list[Route]:
    found = [
        Route(path, stream, (("stream", stream), *index))
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
        Route(f"/api/v2/{path}/completions-detection", stream, (("model", "m"), ("stream", stream), *index))
        for stream in (False, True)
        for path, index in (("chat", ()), ("chat", (("index_name", "docs"),)), ("text", ()))
    ]
    for path in Stages().single_stage_paths():
        if path.endswith("/stream"):
            found.append(Route(path, stream=True))
        elif path.startswith(("/2024-01/", "/2024-01-28/")):
            found += [Route(path, stream, (("stream", stream),)) for stream in (False, True)]
        else:
            found.append(Route(path, stream=False))
    return found


def all_routes() -> list[Route]:
    """Return all routes, including those whose answers have a special form."""
    return [*routes(), GENERATION, COMPACTION]


@dataclass
class World:
    """The gateway, its fakes, and the keys of encrypted content."""

    app: ASGIApp
    generator: FakeGenerator
    retriever: FakeRetriever
    responses: FakeResponses
    keys: ContentKeys

    async def ask(self, route: Route, mount: str, tokens: Sequence[str], **members: Any) -> tuple[int, bytes]:
        """Send a request, and return the status and the bytes of the answer. The model generates the given
        tokens.
        """
        script: list[Any] = [[Start(b'{"id":"x","model":"m"}')], *([Delta(0, token)] for token in tokens)]
        return await self.ask_with_events(route, mount, [*script, [Finish(0, "stop"), Usage(1, 1)]], **members)

    async def ask_with_events(
        self, route: Route, mount: str, script: list[Any], **members: Any
    ) -> tuple[int, bytes]:
        """Send a request, and return the status and the bytes of the answer. The model server sends the given
        events.
        """
        self.generator.script = script
        body = json.dumps(route.body(members.pop("messages", QUESTION), members)).encode()
        scope = {
            "type": "http",
            "http_version": "1.1",
            "scheme": "http",
            "method": "POST",
            "path": f"/{mount}{route.path}",
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
    raise AssertionError("the test needs no embeddings")


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
        # The chats call only these services.
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


def objects(route: Route, body: bytes) -> list[Any]:
    """Return the JSON objects of an answer, and check that the answer is complete."""
    if not route.stream:
        return [json.loads(body)]
    text = body.decode()
    if route.is_responses:
        *events, rest = text.split("\n\n")
        assert rest == ""
        return [json.loads(event.partition("\ndata: ")[2]) for event in events]
    if route.has_openai_format:
        *events, done, rest = text.split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return [json.loads(event.removeprefix("data: ")) for event in events]
    assert text.endswith("\n")
    return [json.loads(line) for line in text.splitlines()]


def visible_text(route: Route, body: bytes) -> str:
    """Return the text that the client shows."""
    texts = []
    for each in objects(route, body):
        if route.is_responses:
            texts.append(text_of_response(route, each))
            continue
        assert "error" not in each
        inside = each["choices"][0] if each.get("choices") else each
        piece = inside.get("delta", inside.get("message", inside.get("output_text", inside.get("text", {}))))
        texts.append(piece if isinstance(piece, str) else piece.get("content") or "")
    return "".join(texts)


def text_of_response(route: Route, value: Any) -> str:
    """Return the text of a complete response, or of an event."""
    if route.stream:
        return value["delta"] if value["type"] == "response.output_text.delta" else ""
    assert value["error"] is None
    parts = (part for item in value["output"] if item["type"] == "message" for part in item["content"])
    return "".join(part["text"] for part in parts)


def finish_reasons(route: Route, body: bytes) -> set[str]:
    """Return the reasons for the end of the answer, from finish reasons or the last thoughts."""
    reasons = set()
    if route.is_responses:
        last = objects(route, body)[-1]
        last = last["response"] if route.stream else last
        return {(last["incomplete_details"] or {}).get("reason", "stop")}
    for each in objects(route, body):
        inside = each["choices"][0] if each.get("choices") else each
        reasons |= {inside.get("finish_reason")} if isinstance(inside.get("finish_reason"), str) else set()
        context = inside.get("context") or inside.get("message", {}).get("context") or {}
        reasons |= {each["description"] for each in context.get("thoughts", ()) if each["title"] == "Answer"}
    return reasons


def tokens(secret: str) -> list[list[str]]:
    """Return an answer that contains the secret, split into tokens in several ways: one token for each character,
    and two tokens for each cut inside the secret.
    """
    positions = [len(BEFORE) + cut for cut in range(1, len(secret))]
    text = BEFORE + secret + AFTER
    cuts = positions if ALL else positions[len(positions) // 2 :][:1]
    return [list(text), *([text[:cut], text[cut:]] for cut in cuts)]


def name_of(parameter: Route | str) -> str:
    """Return the id of a test's parameter."""
    if isinstance(parameter, str):
        return parameter
    return f"{parameter.path} {'stream' if parameter.stream else 'unary'} {dict(parameter.members)}"


def parametrize_routes(found: Sequence[Route]) -> pytest.MarkDecorator:
    """Parametrize a test with these routes."""
    return pytest.mark.parametrize("route", found, ids=name_of)


ROUTES = parametrize_routes(routes())


# The answers of this route are unary and have no choices. Each request names a detector of generations.
GENERATION = Route(
    "/api/v2/text/generation-detection", stream=False, members=(("model_id", "m"), ("detectors", {"relevance": {}}))
)

# The answers of this route contain no readable text of the model.
COMPACTION = Route("/v1/responses/compact", stream=False, members=(("model", "m"),))


async def test_every_chat_route_is_in_the_matrix() -> None:
    """These tests cover every registered dialect."""
    shared = set(Stages().bare_paths())  # paths that several versions share
    registered = {chat.path.replace("{model:path}", "m") for dialect in registrations() for chat in dialect.chats}
    assert registered - shared == {route.path for route in all_routes()}


@ROUTES
@pytest.mark.timeout(600)
async def test_nothing_leaks(world: World, route: Route) -> None:
    """With the action report the answer is complete, with redact it has no secret, and with block it ends before
    the secret in a valid form.
    """
    for secret, mount in itertools.product(SECRETS, ACTIONS):
        for pieces in tokens(secret):
            status, body = await world.ask(route, mount, pieces)
            assert status == 200, body
            text = visible_text(route, body)
            if mount == "report":
                assert text == BEFORE + secret + AFTER, (secret, pieces)
            elif mount == "redact":
                assert text == BEFORE + "[REDACTED]" + AFTER, (secret, pieces)
            else:
                assert text.endswith(MESSAGE), (secret, pieces, body)
                assert BEFORE.startswith(text.removesuffix(MESSAGE)), (secret, pieces)
            assert finish_reasons(route, body) == {"content_filter" if mount == "block" else "stop"}
            assert (secret.encode() in body) is (mount == "report"), (
                "another member of the answer contains the secret"
            )


@pytest.mark.parametrize(
    "route",
    [each for each in routes() if each.path.startswith("/20") or "index_name" in dict(each.members)],
    ids=lambda route: f"{route.path} {'stream' if route.stream else 'unary'}",
)
async def test_a_cited_name_is_kept(world: World, route: Route) -> None:
    """A redaction keeps the name of a passage that the answer cites. It does not keep a name of another passage, or
    a name that is not cited.
    """
    page = "ann@kelp.org.pdf#page=2"
    original = world.retriever.indexes["docs"]
    world.retriever.indexes["docs"] = [replace(PASSAGE, sourcefile="ann@kelp.org.pdf", sourcepage=page)]
    try:
        for name in (f"[{page}]", f"[bob@kelp.org.pdf#page=2][{page}]", f"ann@kelp.org [{page}]"):
            text = BEFORE + name + AFTER
            expected = text.replace("bob@kelp.org.pdf", "[REDACTED]").replace("ann@kelp.org ", "[REDACTED] ")
            for pieces in ([text], list(text)):
                status, body = await world.ask(route, "redact", pieces)
                assert (status, visible_text(route, body)) == (200, expected)
    finally:
        world.retriever.indexes["docs"] = original


@ROUTES
async def test_a_reporting_detector_reveals_no_redacted_text(world: World, route: Route) -> None:
    """The findings of a reporting detector of the client do not contain the text that a detector of the profile
    redacts.
    """
    detectors = {"output": {"regex": {"regex": ["[0-9]", "then [0-9-]+ and", "note"]}}}
    pieces = [BEFORE, "123-45", "-6789", AFTER]
    status, body = await world.ask(route, "redact", pieces, **route.with_detectors(detectors))
    assert (status, visible_text(route, body)) == (200, BEFORE + "[REDACTED]" + AFTER)
    found = [result for each in objects(route, body) for result in results(each)]
    findings = {(each["detection"], each["text"]) for each in found}
    assert findings == {("social_security_number", "[REDACTED]"), ("custom_regex", "note")}


def results(each: Any) -> list[Any]:
    """Return the findings of output detectors in an object of an answer."""
    each = each.get("response", each)
    inside = each["choices"][0] if each.get("choices") else each
    context = inside.get("context") or inside.get("message", {}).get("context") or each
    found = context.get("detections", {}).get("output", ())
    return [result for choice in found for result in choice["results"]]


@ROUTES
@pytest.mark.parametrize("action", ACTIONS)
async def test_detectors_of_a_request(world: World, route: Route, action: str) -> None:
    """The ``detectors`` of a request have the same effect as a policy of a profile, for answers and for
    questions.
    """
    detector = {"ban_substrings": {"substrings": ["project tern"], "action": action}}

    status, body = await world.ask(
        route, "report", [BEFORE, "project", " ter", "n", AFTER], **route.with_detectors({"output": detector})
    )
    expected = {"report": "project tern", "redact": "[REDACTED]", "block": ""}[action]
    tail = MESSAGE if action == "block" else AFTER
    # The orchestrator's routes release complete sentences.
    begin = "" if route.is_orchestrator and action == "block" else BEFORE
    assert (status, visible_text(route, body)) == (200, begin + expected + tail)
    messages = [{"role": "user", "content": "Where is project tern?"}]
    world.generator.prompts.clear()
    status, body = await world.ask(
        route, "report", ["Here."], **route.with_detectors({"input": detector}), messages=messages
    )
    if action == "block":
        message = "" if route.is_orchestrator else MESSAGE
        assert (status, visible_text(route, body), world.generator.prompts) == (200, message, [])
    else:
        assert visible_text(route, body) == "Here."
        [prompt] = world.generator.prompts
        assert ("project tern" in str(prompt)) is (action == "report")


@ROUTES
@pytest.mark.parametrize("allow", [True, False])
async def test_a_detector_that_fails(world: World, route: Route, allow: bool) -> None:
    """``on_error`` determines whether the answer is blocked or continues with a warning. No text is released
    without the warning.
    """
    # The text exceeds the detector's limit of held text, also in a unary answer.
    detector = {"regex": {"regex": ["xx*y"], "action": "block", "on_error": "allow" if allow else "block"}}
    pieces = ["Then ", *["x" * 1000] * 40]
    status, body = await world.ask(route, "report", pieces, **route.with_detectors({"output": detector}))
    if route.is_orchestrator and not allow:
        # These routes report the failure as a status.
        assert (status, json.loads(body)["code"], b"Then" in body, b"xx" in body) == (500, 500, False, False)
        return
    assert status == 200
    if allow:
        assert visible_text(route, body) == "".join(pieces)
    else:
        assert visible_text(route, body) == "Then " + MESSAGE
        assert finish_reasons(route, body) == {"content_filter"}
    assert b"DETECTOR_ERROR" in body


@ROUTES
@pytest.mark.parametrize(
    ("action", "on_error", "blocks"),
    [("report", "block", False), ("block", "allow", False), ("block", "block", True)],
)
async def test_an_answer_without_passages(
    world: World, route: Route, action: str, on_error: str, blocks: bool
) -> None:
    """A detector that compares the answer with passages is not called if there are no passages. The answer reports
    this, and is blocked if the detector protects it.
    """
    members = route.with_detectors({"output": {"groundedness": {"action": action, "on_error": on_error}}})
    world.retriever.indexes["docs"] = []
    try:
        status, body = await world.ask(route, "report", ["Every nine", " years. Or ten."], **members)
    finally:
        world.retriever.indexes["docs"] = [PASSAGE]
    if route.is_orchestrator and (blocks or "index_name" not in dict(route.members)):
        # These routes refuse the detector without an index.
        reason = "no passages" if "index_name" in dict(route.members) else "not supported by this endpoint"
        assert (status, reason in body.decode(), b"nine" in body) == (422, True, False)
        return
    assert (status, visible_text(route, body)) == (200, MESSAGE if blocks else "Every nine years. Or ten.")
    assert finish_reasons(route, body) == {"content_filter" if blocks else "stop"}
    assert body.count(b"DETECTOR_NOT_ASKED") == 1
    assert b"DETECTOR_ERROR" not in body


STAGES = pytest.mark.parametrize(
    "route",
    [route for route in routes() if not route.has_openai_format],
    ids=lambda route: f"{route.path} {route.stream}",
)


@STAGES
@pytest.mark.parametrize("mount", ["redact", "block"])
async def test_detectors_judge_follow_up_questions_and_queries(world: World, route: Route, mount: str) -> None:
    """The detectors also judge follow-up questions and search queries of the model."""
    context = {"overrides": {"suggest_followup_questions": True, "query_rewriting": True}}
    messages = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Ann."}, *QUESTION]
    if not route.path.endswith("/ask"):
        # Without an earlier turn, the gateway does not ask the model for a query.
        world.generator.scripts.append(FakeGenerator.words("owner of ", SECRETS[0]))
    pieces = ["Yes.", "\n<<Is 123-4", "5-6789 hers?>>", "<<When?>>"]
    status, body = await world.ask(route, mount, pieces, context=context, messages=messages)
    assert status == 200
    assert not world.generator.scripts
    assert SECRETS[0].encode() not in body
    assert (b"Is [REDACTED] hers?" in body) is (mount == "redact")
    assert (b"When?" in body) is (mount == "redact")


# --- the matrix: dialect x stream or unary x place or role x action -----------------------------------------------

ALL_ROUTES = parametrize_routes(all_routes())
SECRET = SECRETS[0]
START = Start(b'{"id":"x","model":"m"}')
END: list[Any] = [Finish(0, "stop"), Usage(1, 1)]


def delta_with(members: dict[str, Any]) -> Delta:
    """Return an event that has members of a delta, but no text."""
    return Delta(0, "", json.dumps(members).encode())


def tool_call(arguments: str) -> Delta:
    """Return an event with the next piece of a tool call's arguments."""
    return delta_with({"tool_calls": [{"index": 0, "function": {"name": "find", "arguments": arguments}}]})


def alternative(token: str) -> Delta:
    """Return an event with a word that has the token as an alternative in its log probabilities."""
    probable = {"token": " yes", "top_logprobs": [{"token": token, "bytes": [ord(token)]}]}
    return Delta(0, " yes", b"", json.dumps({"logprobs": {"content": [probable]}}).encode())


def split_at_secret(text: str) -> tuple[str, str]:
    """Split a text inside the secret."""
    at = text.index(SECRET) + 4
    return text[:at], text[at:]


def completion(message: dict[str, Any], **members: Any) -> list[Any]:
    """Return the events of a unary answer of the model server."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "Yes.", **message}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return [[Completion(json.dumps({"id": "x", "choices": [choice], "usage": usage, **members}).encode())]]


ARGUMENTS = json.dumps({"who": f"the {SECRET}", "n": 4111111111111111})
ESCAPED = ARGUMENTS.replace("-", "\\u002d")
NESTED = json.dumps({"inner": ARGUMENTS})
CALL = {"id": "c", "type": "function", "function": {"name": "find", "arguments": ARGUMENTS}}

PLACES: dict[str, list[Any]] = {
    "text": [[START], *([Delta(0, each)] for each in split_at_secret(f"It is {SECRET}.")), END],
    "content in parts": [[START], [delta_with({"content": [{"type": "text", "text": f"It is {SECRET}."}]})], END],
    "tool arguments": [[START], *([tool_call(each)] for each in split_at_secret(ARGUMENTS)), END],
    "escaped tool arguments": [[START], [tool_call(ESCAPED)], END],
    "nested tool arguments": [[START], [tool_call(NESTED)], END],
    "function arguments": [[START], [delta_with({"function_call": {"name": "f", "arguments": ARGUMENTS}})], END],
    "custom tool": [[START], [delta_with({"tool_calls": [{"index": 0, "custom": {"input": SECRET}}]})], END],
    "reasoning": [
        [START],
        *([delta_with({"reasoning_content": each})] for each in split_at_secret(f"Hm, {SECRET}.")),
        END,
    ],
    "refusal": [[START], *([delta_with({"refusal": each})] for each in split_at_secret(f"No {SECRET}.")), END],
    "delta member": [[START], [delta_with({"annotations": [{"title": SECRET}]}), Delta(0, "Yes.")], END],
    "top-level member": [[Start(json.dumps({"id": "x", "citations": [SECRET]}).encode())], [Delta(0, "Yes.")], END],
    "split over members": [
        [Start(json.dumps({"id": "x", "citations": list(split_at_secret(SECRET))}).encode())],
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
    "alternative tokens": [[START], *([alternative(each)] for each in SECRET), END],
    "error text": [UpstreamRejected("refused", status=400, body=json.dumps({"error": {"message": SECRET}}))],
    "plain error text": [UpstreamRejected("refused", status=503, body=f"no {SECRET}")],
    "error in a stream": [
        [START, Delta(0, "Yes. And so ")],
        UpstreamRejected("refused", status=500, body=json.dumps({"error": {"message": SECRET}})),
    ],
    "whole text": completion({"content": f"It is {SECRET}."}),
    "whole parts": completion({"content": [{"type": "text", "text": each} for each in split_at_secret(SECRET)]}),
    "whole tool arguments": completion({"tool_calls": [CALL]}),
    "whole reasoning": completion({"reasoning_content": SECRET}),
    "whole refusal": completion({"content": None, "refusal": SECRET}),
    "whole citations": completion({}, citations=[SECRET]),
    "whole usage": completion({}, usage={"prompt_tokens": 1, "completion_tokens": 1, "note": SECRET}),
    "follow-up": [[START], [Delta(0, f"Yes.\n<<Is it {SECRET}?>>")], END],
    "joined after a follow-up": [[START], [Delta(0, SECRET[:5] + "<<Why?>>" + SECRET[5:])], END],
}
FOLLOW_UP_PLACES = ("follow-up", "joined after a follow-up")


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


def readable_texts(route: Route, body: bytes) -> list[str]:
    """Return all texts that a client can read: each text of an answer, and the joined pieces of a stream."""
    lines = body.decode().splitlines() if route.stream else [body.decode()]
    joined: dict[tuple[Any, ...], str] = {}
    found: list[str] = []
    for line in lines:
        payload = line.removeprefix("data: ")
        if not payload or payload == "[DONE]" or payload.startswith(("event:", ":")):
            continue
        for path, text in texts_of(json.loads(payload)):
            found.append(text)
            joined[path] = joined.get(path, "") + text
    for path, text in joined.items():
        found.append(text)
        if path[-1] in ("arguments", "input"):
            with contextlib.suppress(ValueError):
                found += [inner for _, inner in texts_of(json.loads(text))]
    return found


@pytest.mark.parametrize(
    ("route", "place"),
    # Only the RAG chat protocol has follow-up questions.
    [
        (route, place)
        for route in all_routes()
        for place in PLACES
        if place not in FOLLOW_UP_PLACES or not route.has_openai_format
    ],
    ids=name_of,
)
@pytest.mark.timeout(600)
async def test_no_part_of_an_answer_has_the_secret(world: World, route: Route, place: str) -> None:
    """With the actions redact and block, no part of the answer contains the secret, and its JSON is valid."""
    members = {"context": {"overrides": {"suggest_followup_questions": True}}} if place in FOLLOW_UP_PLACES else {}
    for mount in ("redact", "block"):
        _, body = await world.ask_with_events(route, mount, PLACES[place], **members)
        assert [
            text for text in readable_texts(route, body) if SECRET in text or "4111111111111111" in text
        ] == [], mount
        assert body, mount


@pytest.mark.parametrize(
    ("route", "place"),
    [
        (route, place)
        for route in routes()
        for place in ("tool arguments", "whole tool arguments")
        if route.has_openai_format
        and not (route.has_prompt or route.is_responses or (route.stream and place == "whole tool arguments"))
    ],
    ids=name_of,
)
async def test_a_finding_in_a_tool_call_is_reported(world: World, route: Route, place: str) -> None:
    """A finding in a tool call is in ``detections`` without a position."""
    _, body = await world.ask_with_events(route, "block", PLACES[place])
    found = [result for each in objects(route, body) for result in results(each)]
    assert "social_security_number" in {each["detection"] for each in found}
    assert all("start" not in each for each in found)
    assert b"UNSUITABLE_OUTPUT" in body


@pytest.mark.parametrize(
    ("route", "place"),
    [
        (route, place)
        for route in routes()
        for place in ("text", "tool arguments", "reasoning", "top-level member", "error text")
        if route.has_openai_format
        and not (route.path == "/v1/completions" and place in ("tool arguments", "reasoning"))
        and not (route.is_responses and place == "top-level member")
    ],
    ids=name_of,
)
async def test_reporting_detectors_change_nothing(world: World, route: Route, place: str) -> None:
    """Detectors that only report do not remove the secret from the answer."""
    _, body = await world.ask_with_events(route, "report", PLACES[place])
    assert any(SECRET in text for text in readable_texts(route, body))


MODEL_MESSAGE = {
    "role": "assistant",
    "content": None,
    "refusal": f"No {SECRET}.",
    "audio": None,
    "tool_calls": [{"index": 0, **CALL}],
    "annotations": [],
}


@parametrize_routes(
    [route for route in all_routes() if route.has_openai_format and not route.stream and not route.is_responses]
)
async def test_a_unary_answer_keeps_the_model_servers_members(world: World, route: Route) -> None:
    """For a unary request, the gateway requests no stream from the model server. Reporting detectors change no part
    of the answer.
    """
    content = [{"type": "text", "text": each} for each in split_at_secret(SECRET)]
    for message in (MODEL_MESSAGE, MODEL_MESSAGE | {"content": content}):
        events = completion(message, vendor=None)
        if route.has_prompt and route.path.startswith("/api/"):
            events = [
                [Completion(json.dumps({"choices": [{"index": 0, "text": SECRET, "logprobs": None}]}).encode())]
            ]
        world.generator.prompts.clear()
        _, body = await world.ask_with_events(route, "report", events)
        [prompt] = world.generator.prompts
        assert (prompt.in_one_piece, prompt.passthrough_json) == (True, b"")
        [event] = events[0]
        own, answered = json.loads(event.raw_json), json.loads(body)
        if route == GENERATION:
            assert answered["generated_text"] == SECRET
        elif route.path == "/v1/completions":
            assert answered["choices"][0]["text"] == ("" if message is MODEL_MESSAGE else SECRET)
            assert answered["usage"] == own["usage"]
        else:
            assert {name: answered[name] for name in own} == own


REQUESTS: dict[str, dict[str, Any]] = {
    role: {"messages": [{"role": role, "content": f"It is {SECRET}."}, *QUESTION]}
    for role in ("system", "developer")
}
REQUESTS |= {
    "user": {"messages": [{"role": "user", "content": f"Is it {SECRET}?"}]},
    "tool": {
        "messages": [
            *QUESTION,
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{**CALL, "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": SECRET},
        ]
    },
    "function": {"messages": [*QUESTION, {"role": "function", "name": "f", "content": SECRET}]},
    "earlier assistant": {"messages": [*QUESTION, {"role": "assistant", "content": SECRET}, *QUESTION]},
    "earlier call": {
        "messages": [
            *QUESTION,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c", "content": "found"},
        ]
    },
    "final assistant": {"messages": [*QUESTION, {"role": "assistant", "content": SECRET}]},
    "two parts": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": t} for t in split_at_secret(SECRET)]}]
    },
    "prediction": {"prediction": {"type": "content", "content": SECRET}},
    "documents": {"documents": [{"text": SECRET}]},
    "tools": {"tools": [{"type": "function", "function": {"name": "f", "description": SECRET}}]},
    "prompt": {"context": {"overrides": {"prompt_template": f"Say {SECRET}."}}},
}


@ALL_ROUTES
@pytest.mark.parametrize("role", REQUESTS)
async def test_the_model_gets_no_secret_of_any_role(world: World, route: Route, role: str) -> None:
    """The prompt of the model contains no secret of a request in any role. With the action block, the model is not
    called.
    """
    members = REQUESTS["user" if route.has_prompt else role]
    for mount in ("redact", "block"):
        world.generator.prompts.clear()
        status, _ = await world.ask(route, mount, ["Yes."], **members)
        prompts = repr(world.generator.prompts).replace("\\n", "")
        assert SECRET not in prompts
        assert "".join(split_at_secret(SECRET)) not in prompts
        if role == "user" and route not in (GENERATION, COMPACTION):
            assert (status, bool(world.generator.prompts)) == ((200, mount == "redact"))


@pytest.mark.parametrize("mount", ["redact", "block"])
@pytest.mark.parametrize("secret", [*SECRETS], ids=range(len(SECRETS)))
async def test_no_summary_has_a_secret(world: World, secret: str, mount: str) -> None:
    """The encrypted summary of a conversation contains the redacted text. With the action block, the gateway
    creates no summary.
    """
    for tokens_ in tokens(secret):
        status, body = await world.ask(COMPACTION, mount, tokens_)
        if mount == "block":
            assert status == 400
            continue
        [item] = [item for item in json.loads(body)["output"] if item["type"] == "compaction"]
        summary = world.keys.unseal(Principal("local"), mount, "compaction", item["encrypted_content"])
        assert json.loads(summary or "")["text"] == (BEFORE + "[REDACTED]" + AFTER).strip()


@parametrize_routes([route for route in all_routes() if route.has_openai_format and route != GENERATION])
async def test_members_that_no_detector_reads_are_refused(world: World, route: Route) -> None:
    """If the profile has a policy, the gateway refuses a request with members that no detector reads, such as a
    suffix or a chat template.
    """
    for name in ("suffix", "chat_template", "prompt_embeds"):
        world.generator.prompts.clear()
        status, _ = await world.ask(route, "redact", ["Yes."], **{name: SECRET})
        # These routes always refuse these members.
        refused = 400 if route.is_responses or (name, route.path) == ("suffix", "/v1/completions") else 403
        assert (status, world.generator.prompts) == (refused, []), name


@pytest.mark.parametrize("mount", ["redact", "block"])
@pytest.mark.parametrize(
    "route", [route for route in routes() if route.is_responses], ids=lambda route: f"{dict(route.members)}"
)
async def test_no_response_is_stored_with_a_secret(world: World, route: Route, mount: str) -> None:
    """No part of a stored response contains a secret of the model, or a secret of the request in any role."""
    world.responses.kept.clear()
    for script in PLACES.values():
        await world.ask_with_events(route, mount, script)
    for members in REQUESTS.values():
        await world.ask(route, mount, ["Yes."], **members)
    stored_responses = [each for own in world.responses.kept.values() for each in own.values()]
    assert len(stored_responses) > len(PLACES) // 2
    written = [json.loads(msgspec.json.encode([each.object, each.items])) for each in stored_responses]
    texts = [text for each in written for _, text in texts_of(each)]
    assert [text for text in texts if SECRET in text] == []


async def test_no_administrator_reads_a_response(world: World) -> None:
    """An administrator's routes return no texts of responses."""
    world.responses.kept.clear()
    storing_routes = [route for route in routes() if route.is_responses]
    for route in storing_routes:
        await world.ask(route, "report", [SECRET, AFTER], messages=[{"role": "user", "content": SECRET}])
    stored_responses = [each for own in world.responses.kept.values() for each in own.values()]
    assert [SECRET in str([each.object, each.items]) for each in stored_responses] == [True] * len(storing_routes)
    transport = httpx.ASGITransport(world.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        listed = await client.get("/responses")
        shown = [await client.get(f"/responses/{each.id}") for each in stored_responses]
    assert len(listed.json()["responses"]) == len(stored_responses)
    received = "".join(each.text for each in (listed, *shown))
    assert [text for text in (SECRET, AFTER, PASSAGE.text) if text in received] == []


@parametrize_routes([route for route in all_routes() if not route.has_prompt])
async def test_unknown_roles_are_refused(world: World, route: Route) -> None:
    """A message with an unknown role is refused."""
    for role in ("User", "human", "user "):
        world.generator.prompts.clear()
        messages = [{"role": role, "content": SECRET}, *QUESTION]
        status, _ = await world.ask(route, "report", ["Yes."], messages=messages)
        assert (status, world.generator.prompts) == (400, [])


# --- random answers -----------------------------------------------------------------------------------------


def random_answer(rng: random.Random) -> list[Any]:
    """Return the events of an answer with secrets in random places and pieces."""
    events: list[Any] = []
    for _ in range(rng.randint(1, 5)):
        secret = rng.choice([*SECRETS, "", "12", "3-45"])
        text = rng.choice(["", "a ", "\n", "9", '"']) + secret + rng.choice(["", " b", "-6789", "."])
        cuts = sorted(rng.randint(0, len(text)) for _ in range(rng.randint(0, 3)))
        pieces = [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
        place = rng.choice(["text", "reasoning_content", "refusal", "arguments", "start", "member", "finish"])
        if place == "text":
            events += [Delta(0, piece) for piece in pieces]
        elif place in ("reasoning_content", "refusal"):
            events += [delta_with({place: piece}) for piece in pieces]
        elif place == "arguments":
            # An answer has only one tool call.
            events += [tool_call(json.dumps({"a": text, "b": pieces}))] if not any(map(_calls, events)) else []
        elif place == "start":
            events.append(Start(json.dumps({"id": "x", "citations": pieces, "note": text}).encode()))
        elif place == "member":
            events.append(Delta(0, rng.choice(["", "and "]), b"", json.dumps({"note": {"x": text}}).encode()))
    finish = Finish(0, "stop", json.dumps({"last": rng.choice(SECRETS)}).encode() if rng.random() < 0.3 else b"")
    batches: list[Any] = [[START]]
    for event in [*events, finish, Usage(1, 1)]:
        if rng.random() < 0.5:
            batches.append([])
        batches[-1].append(event)
    return batches


def _calls(event: Any) -> bool:
    return isinstance(event, Delta) and b"tool_calls" in event.delta_json


async def test_no_detector_finds_anything_in_a_random_answer(world: World) -> None:
    """With the actions redact and block, no detector finds anything in the texts that a client can read."""
    detectors = [
        regex(Limits()).make(b'{"regex": ["us-social-security-number", "credit-card", "email"]}'),
        secrets(Limits()).make(b"{}"),
        ban_substrings(Limits()).make(b'{"substrings": ["project tern"]}'),
    ]
    tested = (
        [route for route in routes() if route.has_openai_format]
        if ALL
        else [route for route in routes() if route.path.startswith("/v1/")]
    )
    for seed in range(1500 if ALL else 60):
        rng = random.Random(seed)
        route, mount = rng.choice(tested), rng.choice(["redact", "block"])
        _, body = await world.ask_with_events(route, mount, random_answer(rng))
        for text in readable_texts(route, body):
            found = [finding for each in detectors for finding in cast("Any", each.detector).detect(text)]
            assert found == [], (seed, route, mount, text, body)
