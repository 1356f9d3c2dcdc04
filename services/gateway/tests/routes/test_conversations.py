"""Conversations are created, read and changed, and responses continue them."""

from typing import Any

import httpx
import pytest
from causeway_testing import responses
from gateway.domain import Action, Detector, Detectors
from gateway.domain.responses import new_name
from gateway.frontends.profiles_file import FrontendsFile
from gateway.main import build_app
from gateway.settings import Settings

PATH = "/v1/conversations"
HELLO = {"type": "message", "role": "user", "content": "Hello."}


async def begun(client: httpx.AsyncClient, **body: Any) -> str:
    answer = await client.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    return str(responses.conversation(answer.json()).id)


async def items(client: httpx.AsyncClient, name: str, **query: Any) -> list[Any]:
    page = (await client.get(f"{PATH}/{name}/items", params={"order": "asc", **query})).json()
    return [responses.conversation_item(item) for item in page["data"]]


async def test_a_conversation_is_created_changed_and_deleted(client: httpx.AsyncClient) -> None:
    """A conversation is created with metadata, changed and deleted."""
    name = await begun(client, metadata={"a": "b"})
    assert (await client.get(f"{PATH}/{name}")).json()["metadata"] == {"a": "b"}
    changed = (await client.post(f"{PATH}/{name}", json={"metadata": {"c": "d"}})).json()
    assert responses.conversation(changed).metadata == {"c": "d"}
    assert (await client.get(f"{PATH}/{name}")).json() == changed
    gone = (await client.delete(f"{PATH}/{name}")).json()
    assert gone == {"id": name, "object": "conversation.deleted", "deleted": True}
    assert (await client.get(f"{PATH}/{name}")).status_code == 404


async def test_items_are_added_listed_read_and_deleted(client: httpx.AsyncClient) -> None:
    """Items are added, listed in pages, read and deleted. Each has the format of the reference."""
    name = await begun(client, items=[HELLO])
    new_items: list[dict[str, Any]] = [
        {"type": "message", "role": "assistant", "content": "Hi."},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "y"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": "z"},
        {"type": "reasoning", "summary": []},
    ]
    added = (await client.post(f"{PATH}/{name}/items", json={"items": new_items})).json()
    assert [item["type"] for item in added["data"]] == [item["type"] for item in new_items]
    listed = await items(client, name)
    assert [item.type for item in listed] == ["message", *(item["type"] for item in new_items)]
    assert [item.id for item in await items(client, name, after=listed[2].id, limit=2)] == [
        listed[3].id,
        listed[4].id,
    ]
    one = (await client.get(f"{PATH}/{name}/items/{listed[1].id}")).json()
    assert responses.conversation_item(one) == listed[1]
    remaining = await client.delete(f"{PATH}/{name}/items/{listed[1].id}")
    assert responses.conversation(remaining.json()).id == name
    assert [item.id for item in await items(client, name)] == [item.id for item in (listed[0], *listed[2:])]
    assert (await client.delete(f"{PATH}/{name}/items/{listed[1].id}")).status_code == 404


async def test_responses_continue_a_conversation(client: httpx.AsyncClient, fakes: Any) -> None:
    """A response receives the earlier items of the conversation, and adds its question and its answer."""
    name = await begun(client, items=[{"type": "message", "role": "developer", "content": "Be brief."}])
    for body in ({"conversation": name, "store": False}, {"conversation": {"id": name}, "stream": True}):
        answer = await client.post("/v1/responses", json={"input": "When?", **body})
        assert answer.status_code == 200, answer.text
        last = responses.events(answer.text)[-1].response if "stream" in body else responses.response(answer.json())
        assert last.conversation.id == name
    messages = [(message.role, message.text) for message in fakes.generator.prompts[-1].messages]
    assert messages == [("system", "Be brief."), ("user", "When?"), ("assistant", "At nine."), ("user", "When?")]
    assert [item.role for item in await items(client, name)] == ["developer", *["user", "assistant"] * 2]


async def test_detectors_judge_the_items_of_a_conversation(client: httpx.AsyncClient, fakes: Any) -> None:
    """Detectors redact the items of a conversation before they are stored, or refuse them."""
    fakes.policy = Detectors(input=(Detector("words", Action.REDACT),))
    secret = {"type": "message", "role": "user", "content": "A secret."}
    name = await begun(client, items=[secret])
    await client.post(f"{PATH}/{name}/items", json={"items": [secret]})
    assert [item.content[0].text for item in await items(client, name)] == ["A [REDACTED]."] * 2
    fakes.policy = Detectors(input=(Detector("words", Action.BLOCK),))
    assert (await client.post(f"{PATH}/{name}/items", json={"items": [secret]})).status_code == 400
    assert len(await items(client, name)) == 2


async def test_a_conversation_belongs_to_its_front_end(fakes: Any, settings: Settings, tmp_path: Any) -> None:
    """A conversation of one front end does not exist for another front end."""
    (tmp_path / "f.yaml").write_text("frontends:\n  - {name: a, mount: a}\n  - {name: b, mount: b}\n")
    fakes.frontends = FrontendsFile(tmp_path / "f.yaml")
    transport = httpx.ASGITransport(build_app(settings, fakes.services()), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        name = (await client.post(f"/a{PATH}", json={})).json()["id"]
        assert (await client.get(f"/a{PATH}/{name}")).status_code == 200
        assert (await client.get(f"/b{PATH}/{name}")).status_code == 404
        body = {"input": "When?", "conversation": name}
        assert (await client.post("/b/v1/responses", json=body)).status_code == 404


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"items": [HELLO] * 21}, "items"),
        ({"items": [{"type": "computer_call"}]}, "items[0].type"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"other": 1}, "other"),
    ],
)
async def test_an_invalid_field_is_refused(client: httpx.AsyncClient, body: dict[str, Any], param: str) -> None:
    """An invalid field is refused with 400, and the error names the field."""
    refused = await client.post(PATH, json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


async def test_an_unknown_conversation_is_not_found(client: httpx.AsyncClient) -> None:
    """Each route returns 404 for a conversation that does not exist."""
    for name in ("x", f"conv_{new_name()}"):
        for refused in (
            await client.get(f"{PATH}/{name}"),
            await client.get(f"{PATH}/{name}/items"),
            await client.post(f"{PATH}/{name}/items", json={"items": [HELLO]}),
            await client.post("/v1/responses", json={"input": "x", "conversation": name}),
        ):
            assert refused.status_code == 404
    both = {"input": "x", "conversation": "conv_x", "previous_response_id": "resp_x"}
    assert (await client.post("/v1/responses", json=both)).status_code == 400
