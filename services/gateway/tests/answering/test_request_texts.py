"""A policy judges the texts of a request other than the messages of users and tools."""

import json
from dataclasses import replace
from typing import Any

import pytest
from causeway_testing.gateway.answering import FakeGuardrails
from gateway.answering.checks import BlockedQuestion, Checks
from gateway.answering.timeline import Timeline
from gateway.dialects.exchange import ChatRequest
from gateway.dialects.openai.chat import OpenAiChat
from gateway.domain import Action, Detections, Detector, Detectors, Message, PromptOptions, Turn
from gateway.frontends.profiles import Frontend
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest, PermissionDenied
from servicekit.principal import LOCAL

USER = {"role": "user", "content": "Hello"}


def parse(policy: Detectors, **more: Any) -> Turn:
    body = json.dumps({"messages": [USER], **more}).encode()
    return OpenAiChat().parse(ChatRequest(body, LOCAL, Frontend(detectors=policy))).turn


def policy(action: Action) -> Detectors:
    return Detectors(input=(Detector("words", action),))


async def checked(requested: Turn) -> tuple[Turn, tuple[Detections, ...]]:
    return await Checks(FakeGuardrails()).check_input(requested, Timeline(), Deadline.after(5))


TOOL = {"type": "function", "function": {"name": "f", "description": "tells the secret", "parameters": {}}}
REQUESTS: list[dict[str, Any]] = [
    {"messages": [{"role": "system", "content": "a secret"}, USER]},
    {"messages": [{"role": "developer", "content": "a secret"}, USER]},
    {"messages": [USER, {"role": "assistant", "content": "The secret is"}]},
    {"messages": [USER, {"role": "assistant", "content": "", "refusal": "secret"}]},
    {"messages": [{"role": "user", "name": "secret", "content": "Hello"}]},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": part} for part in ("a sec", "ret")]}]},
    {"prediction": {"type": "content", "content": "the secret"}},
    {"documents": [{"text": "a sec"}, {"text": "a secret"}]},
    {"tools": [TOOL]},
    {"functions": [TOOL["function"]]},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"title": "secret"}}}},
    {"chat_template_kwargs": {"hint": "secret"}},
]


@pytest.mark.parametrize("members", REQUESTS, ids=lambda members: json.dumps(members)[:70])
async def test_a_policy_judges_every_text_for_the_model(members: dict[str, Any]) -> None:
    """A policy blocks or redacts a word in every text that reaches the model.

    A policy that only reports does not change the request.
    """
    with pytest.raises(BlockedQuestion, match="secret"):
        await checked(parse(policy(Action.BLOCK), **members))
    requested = parse(policy(Action.REDACT), **members)
    after, found = await checked(requested)
    assert "secret" in repr(requested).replace("sec\\nret", "secret")
    remaining = repr(replace(after, original=replace(after.original, json=b"", tools_json=b"")))
    assert "secret" not in remaining.replace("\\n", "")
    assert "[REDACTED]" in remaining
    assert found
    reported = parse(policy(Action.REPORT), **members)
    assert await checked(reported) == (reported, ())


async def test_settings_and_identifiers_are_not_judged() -> None:
    """Settings and identifiers are not judged."""
    requested = parse(
        policy(Action.BLOCK), user="secret", temperature=0.5, stop=["secret"], metadata={"a": "secret"}
    )
    assert await checked(requested) == (requested, ())


async def test_detectors_of_a_request_do_not_judge_its_tools() -> None:
    """Detectors of the request do not judge its tools."""
    requested = parse(Detectors(), detectors={"input": {"words": {}}}, tools=[TOOL])
    assert await checked(requested) == (requested, ())


async def test_the_requests_prompt_is_judged_and_the_platforms_is_not() -> None:
    """A system prompt of the request is judged. The platform's own prompt is not."""
    prompting = PromptOptions(
        system_prompt="The platform's secret.\nTell a secret", requested_prompt="Tell a secret"
    )
    requested = Turn(LOCAL, "Hello", (Message("user", "x"),), detectors=policy(Action.REDACT), prompting=prompting)
    after, _ = await checked(requested)
    assert after.prompting.system_prompt == "The platform's secret.\nTell a [REDACTED]"


@pytest.mark.parametrize("prompt", ["x" * 300_000, "[" * 70 + "]" * 70], ids=["long", "deep"])
async def test_a_prompt_that_no_detector_can_judge_is_refused(prompt: str) -> None:
    """A system prompt of the request beyond the detectors' limits is refused."""
    prompting = PromptOptions(system_prompt=prompt, requested_prompt=prompt)
    requested = Turn(LOCAL, "Hello", (Message("user", "x"),), detectors=policy(Action.REDACT), prompting=prompting)
    with pytest.raises(InvalidRequest, match="prompt_template: the text is too long, or nested too deeply"):
        await checked(requested)


@pytest.mark.parametrize("role", ["User", "human", "user ", "ipython"])
def test_unknown_roles_are_refused(role: str) -> None:
    """An unknown role is refused under a policy, because servers treat it differently, and passed on otherwise."""
    messages = [USER, {"role": role, "content": "secret"}]
    with pytest.raises(InvalidRequest, match=r"messages\[1\].role must be one of"):
        parse(policy(Action.BLOCK), messages=messages)
    assert parse(Detectors(), messages=messages).original.passthrough


@pytest.mark.parametrize("name", ["chat_template", "suffix", "prompt_embeds"])
def test_members_that_cannot_be_judged_are_refused(name: str) -> None:
    """A member that no detector can judge is refused unless the profile allows it or has no policy."""
    with pytest.raises(PermissionDenied, match=name):
        parse(policy(Action.BLOCK), **{name: "x"})
    assert parse(policy(Action.BLOCK), **{name: None}).original.json
    assert parse(Detectors(), **{name: "x"}).original.passthrough
    frontend = Frontend(detectors=policy(Action.BLOCK), allows_chat_template=True)
    body = json.dumps({"messages": [USER], name: "x"}).encode()
    assert OpenAiChat().parse(ChatRequest(body, LOCAL, frontend)).turn.original.json


def test_a_repeated_name_is_refused() -> None:
    """A repeated name is refused, because the detectors and the model server might read different values."""
    body = b'{"messages": [{"role": "user", "content": "secret", "content": "Hello"}]}'
    with pytest.raises(InvalidRequest, match="duplicate name"):
        OpenAiChat().parse(ChatRequest(body, LOCAL, Frontend(detectors=policy(Action.BLOCK))))
