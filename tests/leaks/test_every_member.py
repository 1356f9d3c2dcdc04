"""No member of an answer contains a secret: each place of an answer, on each route, unary and streamed."""

import itertools
import json
import random
from typing import Any, cast

import pytest
from causeway_testing.leaks.answers import objects, readable_texts, results
from causeway_testing.leaks.events import (
    ALL,
    CALL,
    FOLLOW_UP_PLACES,
    PLACES,
    SECRET,
    SECRETS,
    START,
    completion,
    delta_with,
    split_at_secret,
    tool_call,
)
from causeway_testing.leaks.routes import GENERATION, Route, all_routes, name_of, routes
from causeway_testing.leaks.world import World
from detection.detectors.ban_substrings import ban_substrings
from detection.detectors.patterns.matching import Limits
from detection.detectors.regex import regex
from gateway.domain import Completion, Delta, Finish, Start, Usage
from guardrails.detectors.secrets import secrets

pytestmark = pytest.mark.asyncio(loop_scope="module")


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


@pytest.mark.parametrize(
    "route",
    [route for route in all_routes() if route.has_openai_format and not route.stream and not route.is_responses],
    ids=name_of,
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
