"""Stored responses are continued, read and deleted."""

from typing import Any

import httpx
import pytest
from causeway_testing import responses
from gateway.domain import Action, Detector, Detectors, Finish, Start
from gateway.domain.responses import new_name
from gateway.frontends.profiles_file import FrontendsFile
from gateway.main import build_app
from gateway.settings import Settings
from servicekit.errors import Unavailable

PATH = "/v1/responses"
FIND = {"type": "function", "name": "find", "parameters": {"type": "object", "properties": {}}}
PROFILES = """
frontends:
  - {name: help, mount: help, allow: {models: any}}
  - {name: off, mount: off, responses: "off"}
  - {name: requested, mount: requested, responses: requested}
  - {name: strict, mount: strict, unknown_tools: refuse}
"""


async def ask(client: httpx.AsyncClient, path: str = PATH, **body: Any) -> Any:
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return responses.response(answer.json())


def last_messages(fakes: Any) -> list[tuple[str, str]]:
    """Return the messages of the model's last prompt."""
    return [(message.role, message.text) for message in fakes.generator.prompts[-1].messages]


async def test_a_response_continues_another(client: httpx.AsyncClient, fakes: Any) -> None:
    """A response continues another one with its messages. Instructions are not carried over."""
    first = await ask(client, input="One?", instructions="Be brief.")
    second = await ask(client, input="Two?", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    await ask(client, input="Three?", previous_response_id=second.id, instructions="Be long.")
    assert last_messages(fakes) == [
        ("system", "Be long."),
        ("user", "One?"),
        ("assistant", "At nine."),
        ("user", "Two?"),
        ("assistant", "At nine."),
        ("user", "Three?"),
    ]


async def test_a_tool_output_continues_a_response(client: httpx.AsyncClient, fakes: Any) -> None:
    """The output of a tool continues the response with the call."""
    call = b'{"tool_calls":[{"index":0,"id":"c1","function":{"name":"find","arguments":"{}"}}]}'
    fakes.generator.script = [[Start(b"{}"), fakes.generator.script[1][0].__class__(0, "", call)]]
    fakes.generator.script.append([Finish(0, "tool_calls")])
    first = await ask(client, input="Find.", tools=[FIND])
    fakes.generator.script = fakes.generator.words("Done.")
    output = {"type": "function_call_output", "call_id": "c1", "output": "it"}
    await ask(client, input=[output], previous_response_id=first.id, tools=[FIND])
    assert last_messages(fakes) == [("user", "Find."), ("assistant", ""), ("tool", "it")]


async def test_a_request_refers_to_earlier_items(client: httpx.AsyncClient, fakes: Any) -> None:
    """A request can refer to items of a response or of its input by id. An unknown id gets the status 404."""
    first = await ask(client, input="One?")
    input_items = (await client.get(f"{PATH}/{first.id}/input_items")).json()["data"]
    names = [input_items[0]["id"], first.output[0].id]
    items = [*({"type": "item_reference", "id": name} for name in names), {"role": "user", "content": "Two?"}]
    await ask(client, input=items)
    assert last_messages(fakes) == [("user", "One?"), ("assistant", "At nine."), ("user", "Two?")]
    for unknown in ("msg_1", f"msg_{new_name()}_0"):
        refused = await client.post(PATH, json={"input": [{"type": "item_reference", "id": unknown}]})
        assert (refused.status_code, refused.json()["error"]["param"]) == (404, "input[0].id")


async def test_a_response_is_read(client: httpx.AsyncClient) -> None:
    """A stored response is read as it was sent, with and without a stream. Passages are included on request."""
    search = {"type": "file_search", "vector_store_ids": ["docs"]}
    for stream in (False, True):
        body = {"input": "When?", "tools": [search], "stream": stream, "metadata": {"a": "b"}}
        answer = await client.post(PATH, json=body)
        last = responses.events(answer.text)[-1].response if stream else responses.response(answer.json())
        read = (await client.get(f"{PATH}/{last.id}")).json()
        assert responses.response(read) == last
        assert read["store"] is True
        query = {"include[]": "file_search_call.results"}
        assert len((await client.get(f"{PATH}/{last.id}", params=query)).json()["output"][0]["results"]) == 2


async def test_the_input_items_are_listed(client: httpx.AsyncClient) -> None:
    """The input items are listed in pages, in both orders, in the format of the reference."""
    items: list[dict[str, Any]] = [
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "Yes."},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "y"},
        {"type": "custom_tool_call_output", "call_id": "d", "output": "z"},
        {"type": "reasoning", "summary": []},
        {"role": "user", "content": [{"type": "input_text", "text": "Two?"}]},
    ]
    answer = await ask(client, input=items)
    path = f"{PATH}/{answer.id}/input_items"
    page = (await client.get(path, params={"order": "asc", "limit": 5})).json()
    rest = (await client.get(path, params={"order": "asc", "after": page["last_id"]})).json()
    assert (page["has_more"], rest["has_more"]) == (True, False)
    kinds = [responses.item(item).type for item in (*page["data"], *rest["data"])]
    assert kinds == [item.get("type", "message") for item in items]
    newest = (await client.get(path, params={"limit": 1})).json()["data"]
    assert newest == rest["data"][-1:]
    assert (await client.get(path, params={"after": "msg_1"})).status_code == 400


async def test_a_response_is_deleted(client: httpx.AsyncClient) -> None:
    """A deleted response can neither be read nor continued."""
    answer = await ask(client, input="One?")
    assert (await client.delete(f"{PATH}/{answer.id}")).json()["deleted"] is True
    for gone in (
        await client.get(f"{PATH}/{answer.id}"),
        await client.delete(f"{PATH}/{answer.id}"),
        await client.get(f"{PATH}/{answer.id}/input_items"),
        await client.post(f"{PATH}/{answer.id}/cancel"),
        await client.post(PATH, json={"input": "Two?", "previous_response_id": answer.id}),
    ):
        assert gone.status_code == 404


async def test_only_background_responses_are_cancelled(client: httpx.AsyncClient) -> None:
    """The cancellation of a response that is not in the background is refused with 400."""
    answer = await ask(client, input="One?")
    assert (await client.post(f"{PATH}/{answer.id}/cancel")).status_code == 400


async def test_a_response_with_store_false_is_not_stored(client: httpx.AsyncClient, fakes: Any) -> None:
    """A response with `store: false` says so and is not stored."""
    answer = await client.post(PATH, json={"input": "One?", "store": False})
    assert answer.json()["store"] is False
    assert (await client.get(f"{PATH}/{answer.json()['id']}")).status_code == 404
    assert not any(fakes.responses.kept.values())


async def test_responses_without_the_store(client: httpx.AsyncClient, fakes: Any) -> None:
    """If the store cannot be reached, an answer is marked as not stored, and a continuation is refused with 503."""
    first = await ask(client, input="One?")
    fakes.responses.failure = Unavailable("The store cannot be reached.", retry_after=2)
    assert (await client.post(PATH, json={"input": "One?"})).json()["store"] is False
    refused = await client.post(PATH, json={"input": "Two?", "previous_response_id": first.id})
    assert refused.status_code == 503


async def test_the_profile_decides_whether_responses_are_stored(
    fakes: Any, settings: Settings, tmp_path: Any
) -> None:
    """The profile decides whether a response is stored. A profile cannot continue a response of another profile."""
    (tmp_path / "frontends.yaml").write_text(PROFILES)
    fakes.frontends = FrontendsFile(tmp_path / "frontends.yaml")
    transport = httpx.ASGITransport(build_app(settings, fakes.services()), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        stored = {}
        for mount in ("help", "off", "requested"):
            for fields in ({}, {"store": True}, {"store": False}):
                answer = (await client.post(f"/{mount}{PATH}", json={"input": "One?", **fields})).json()
                stored[mount, fields.get("store")] = answer["store"]
        assert stored == {
            **{("help", store): store is not False for store in (None, True, False)},
            **{("off", store): False for store in (None, True, False)},
            **{("requested", store): store is True for store in (None, True, False)},
        }
        first = await ask(client, f"/help{PATH}", input="One?")
        for mount, status in (("help", 200), ("requested", 404), ("off", 400)):
            body = {"input": "Two?", "previous_response_id": first.id}
            assert (await client.post(f"/{mount}{PATH}", json=body)).status_code == status
        body = {"input": "Hi.", "tools": [{"type": "web_search"}]}
        assert (await client.post(f"/strict{PATH}", json=body)).status_code == 400


async def test_stored_responses_are_redacted(client: httpx.AsyncClient, fakes: Any) -> None:
    """A stored response has no redacted words: not in messages, instructions, tools or outputs."""
    fakes.policy = Detectors(input=(Detector("words", Action.REDACT),), output=(Detector("words", Action.REDACT),))
    fakes.generator.script = fakes.generator.words("The ", "secret", " is out.")
    items = [
        {"role": "user", "content": "A secret."},
        {"type": "function_call", "call_id": "c", "name": "find", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "e", "name": "run", "input": "ls"},
        {"type": "function_call_output", "call_id": "c", "output": "secret"},
        {"type": "custom_tool_call_output", "call_id": "e", "output": "secret"},
        {"role": "user", "content": "Another secret."},
        {"role": "user", "content": [{"type": "input_text", "text": "And a secret?"}]},
    ]
    run = {"type": "custom", "name": "run", "description": "secret"}
    tools = [{**FIND, "description": "Finds the secret."}, run]
    for more in ({}, {"index_name": "docs"}):
        body = {"input": items, "instructions": "No secret.", "tools": tools, **more}
        answer = await client.post(PATH, json=body)
        assert answer.status_code == 200, answer.text
        kept = fakes.responses.kept["local", ""][answer.json()["id"]]
        assert "secret" not in repr(kept)
        assert len(kept.items) == 7
        read = await client.get(f"{PATH}/{answer.json()['id']}")
        responses.response(read.json())
        for item in (await client.get(f"{PATH}/{answer.json()['id']}/input_items")).json()["data"]:
            responses.item(item)


async def test_a_blocked_question_is_not_stored(fakes: Any, settings: Settings, tmp_path: Any) -> None:
    """A blocked question is not stored. Its response is stored with the profile's message."""
    (tmp_path / "frontends.yaml").write_text(
        "frontends:\n  - {name: a, mount: a, blocked_message: No., "
        "detectors: {input: [{id: words, action: block}]}}\n"
    )
    fakes.frontends = FrontendsFile(tmp_path / "frontends.yaml")
    transport = httpx.ASGITransport(build_app(settings, fakes.services()), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        answer = await ask(client, f"/a{PATH}", input="The secret?", instructions="No secret.")
        assert (answer.status, answer.output_text) == ("incomplete", "No.")
        [kept] = fakes.responses.kept["local", ""].values()
        assert (kept.items, "secret" in repr(kept)) == ((), False)


async def test_tokens_are_counted(client: httpx.AsyncClient, fakes: Any) -> None:
    """The instructions, the input and the continued response are counted. The model generates nothing."""
    first = await ask(client, input="One two?")
    fakes.generator.prompts.clear()
    counts = [
        (await client.post(f"{PATH}/input_tokens", json={"input": "Three four?", **more})).json()
        for more in ({}, {"instructions": "Be brief."}, {"previous_response_id": first.id})
    ]
    assert [count["input_tokens"] for count in counts] == [2, 4, 6]
    assert counts[0]["object"] == "response.input_tokens"
    assert fakes.generator.prompts == []


@pytest.mark.parametrize("name", ["x", "resp_", "conv_" + "0" * 32, "resp_" + "0" * 32, "resp_" + "0" * 31 + "*"])
async def test_an_unknown_id_is_not_found(client: httpx.AsyncClient, name: str) -> None:
    """An unknown id gets the status 404 and a message."""
    for refused in (
        await client.get(f"{PATH}/{name}"),
        await client.delete(f"{PATH}/{name}"),
        await client.post(PATH, json={"input": "x", "previous_response_id": name}),
    ):
        assert (refused.status_code, bool(refused.json()["error"]["message"])) == (404, True)
