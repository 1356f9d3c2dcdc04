"""The model gets no secret of a request in any role, and neither summaries nor stored responses contain one."""

import json
from typing import Any

import httpx
import msgspec
import pytest
from causeway_testing.leaks.answers import texts_of
from causeway_testing.leaks.events import AFTER, BEFORE, CALL, PLACES, SECRET, SECRETS, split_at_secret, tokens
from causeway_testing.leaks.routes import COMPACTION, GENERATION, Route, all_routes, name_of, routes
from causeway_testing.leaks.world import PASSAGE, QUESTION, World
from servicekit.principal import Principal

pytestmark = pytest.mark.asyncio(loop_scope="module")


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


@pytest.mark.parametrize("route", all_routes(), ids=name_of)
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


@pytest.mark.parametrize(
    "route", [route for route in all_routes() if route.has_openai_format and route != GENERATION], ids=name_of
)
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


@pytest.mark.parametrize("route", [route for route in all_routes() if not route.has_prompt], ids=name_of)
async def test_unknown_roles_are_refused(world: World, route: Route) -> None:
    """A message with an unknown role is refused."""
    for role in ("User", "human", "user "):
        world.generator.prompts.clear()
        messages = [{"role": role, "content": SECRET}, *QUESTION]
        status, _ = await world.ask(route, "report", ["Yes."], messages=messages)
        assert (status, world.generator.prompts) == (400, [])
