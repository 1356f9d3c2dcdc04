"""No text of an answer of any dialect contains a secret. The gateway runs with the real guardrails service.

The detectors do not redact the name of a passage that the answer cites as ``[name]``.
"""

import itertools
import json
from dataclasses import replace

import pytest
from causeway_testing.gateway.answering import FakeGenerator
from causeway_testing.leaks.answers import finish_reasons, objects, results, visible_text
from causeway_testing.leaks.events import AFTER, BEFORE, SECRETS, tokens
from causeway_testing.leaks.routes import Route, all_routes, name_of, routes
from causeway_testing.leaks.world import ACTIONS, MESSAGE, PASSAGE, QUESTION, World
from gateway.dialects.rag_chat.registration import Stages
from gateway.dialects.registry import registrations

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_every_chat_route_is_in_the_matrix() -> None:
    """These tests cover every registered dialect."""
    shared = set(Stages().bare_paths())  # paths that several versions share
    registered = {chat.path.replace("{model:path}", "m") for dialect in registrations() for chat in dialect.chats}
    assert registered - shared == {route.path for route in all_routes()}


@pytest.mark.parametrize("route", routes(), ids=name_of)
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


@pytest.mark.parametrize("route", routes(), ids=name_of)
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


@pytest.mark.parametrize("route", routes(), ids=name_of)
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


@pytest.mark.parametrize("route", routes(), ids=name_of)
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


@pytest.mark.parametrize("route", routes(), ids=name_of)
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


@pytest.mark.parametrize("route", [route for route in routes() if not route.has_openai_format], ids=name_of)
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
