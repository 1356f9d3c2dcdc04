"""Summaries that replace a conversation."""

import json
from collections import deque
from typing import Any

import httpx
import pytest
from causeway_testing import responses
from gateway.domain import Action, Delta, Detector, Detectors, Finish, Start, Usage

PATH = "/v1/responses"
COMPACT = f"{PATH}/compact"
FIND = {"type": "function", "name": "find", "parameters": {"type": "object", "properties": {}}}
TALK = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "When?"},
    {"type": "function_call", "call_id": "c", "name": "find", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "Nine."},
    {"role": "assistant", "content": "At nine."},
]
QUESTION = {"role": "user", "content": "From where?"}


def saying(*texts: str, reason: str = "stop") -> Any:
    return [[Start(b"{}")], *([Delta(0, text)] for text in texts), [Finish(0, reason), Usage(10, 2)]]


def prompt(fakes: Any, at: int = -1) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in fakes.generator.prompts[at].messages]


def summarised(text: str) -> str:
    return f"A summary takes the place of the earlier conversation:\n{text}"


async def ask(client: httpx.AsyncClient, path: str = PATH, **body: Any) -> Any:
    answer = await client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def streamed(client: httpx.AsyncClient, **body: Any) -> list[Any]:
    answer = await client.post(PATH, json={**body, "stream": True})
    assert answer.status_code == 200, answer.text
    return responses.events(answer.text)


async def test_a_conversation_is_compacted(client: httpx.AsyncClient, fakes: Any) -> None:
    """The output has the user's messages and the encrypted summary. The next request can use both as its input."""
    fakes.generator.scripts = deque([saying("They asked ", "for the ferry.")])
    answer = await ask(client, COMPACT, model="m", input=TALK, instructions="Help.")
    assert (answer["object"], [item["type"] for item in answer["output"]]) == (
        "response.compaction",
        ["message", "compaction"],
    )
    user, item = answer["output"]
    assert (user["role"], user["status"], user["content"][0]["text"]) == ("user", "completed", "When?")
    assert item["id"].startswith("cmp_")
    assert responses.compacted(answer).usage.total_tokens == 12
    assert "ferry" not in json.dumps(answer)
    assert prompt(fakes)[:2] == [("system", "Help."), ("system", "Be brief.")]
    assert prompt(fakes)[-1][1].startswith("Summarise the conversation above")
    assert (await client.get(f"{PATH}/{answer['id']}")).status_code == 404

    await ask(client, input=[*answer["output"], QUESTION])
    summary = summarised("They asked for the ferry.")
    assert prompt(fakes) == [("user", "When?"), ("system", summary), ("user", "From where?")]


async def test_a_stored_response_is_compacted(client: httpx.AsyncClient, fakes: Any) -> None:
    """A stored response and the request's input are summarised.

    Messages that an earlier summary covers are not in the output.
    """
    first = await ask(client, input=TALK)
    answer = await ask(client, COMPACT, model="m", input=[QUESTION], previous_response_id=first["id"])
    texts = [item["content"][0]["text"] for item in answer["output"][:-1]]
    assert texts == ["When?", "From where?"]
    second = await ask(client, input=answer["output"][-1:], previous_response_id=first["id"])
    third = await ask(client, COMPACT, model="m", previous_response_id=second["id"], input="And?")
    assert [item["content"][0]["text"] for item in third["output"][:-1]] == ["And?"]


async def test_a_trigger(client: httpx.AsyncClient, fakes: Any) -> None:
    """The response has only the summary, and a request can continue it. There is no search and no tool call."""
    body = {"input": [*TALK, {"type": "compaction_trigger"}], "tools": [FIND], "text": {"verbosity": "low"}}
    events = await streamed(client, **body, index_name="docs", max_output_tokens=5)
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.compaction.compacting",
        "response.output_item.done",
        "response.completed",
    ]
    assert fakes.retriever.queries == []
    assert json.loads(fakes.generator.prompts[0].parameters_json) == {"verbosity": "low"}
    await ask(client, input=[QUESTION], previous_response_id=events[-1].response.id)
    summary = summarised("At nine.")
    assert prompt(fakes)[-3:] == [("user", "When?"), ("system", summary), ("user", "From where?")]
    listed = (await client.get(f"{PATH}/{events[-1].response.id}/input_items")).json()["data"]
    assert [item["type"] for item in listed].count("compaction_trigger") == 0


async def test_a_trigger_is_last(client: httpx.AsyncClient) -> None:
    """A trigger before another item is refused, and the error names that item."""
    refused = await client.post(PATH, json={"input": [*TALK, {"type": "compaction_trigger"}, QUESTION]})
    assert refused.json()["error"]["param"] == "input[6]"


async def test_a_long_conversation_is_compacted_first(client: httpx.AsyncClient, fakes: Any) -> None:
    """The summary precedes the answer, the usage includes both, and the next request continues from the summary."""
    fakes.generator.scripts = deque([saying("Nine."), saying("From the pier.")])
    body: Any = {"context_management": [{"type": "compaction", "compact_threshold": 5}]}
    events = await streamed(client, input=[*TALK, QUESTION], tools=[FIND], **body)
    final = events[-1].response
    assert [item.type for item in final.output] == ["compaction", "message"]
    assert final.output_text == "From the pier."
    assert (final.usage.input_tokens, final.usage.output_tokens) == (20, 4)
    summary = ("system", summarised("Nine."))
    assert prompt(fakes) == [("system", "Be brief."), summary, ("user", "From where?")]
    assert "tools" in json.loads(fakes.generator.prompts[1].parameters_json)
    assert [event.type for event in events].count("response.compaction.compacting") == 1

    await ask(client, input="Sure?", previous_response_id=final.id)
    assert prompt(fakes)[:3] == [("system", "Be brief."), ("user", "From where?"), summary]
    assert prompt(fakes)[3:] == [("assistant", "From the pier."), ("user", "Sure?")]


async def test_a_summary_replaces_an_earlier_summary(client: httpx.AsyncClient, fakes: Any) -> None:
    """A second compaction covers the first summary, so the model gets only the new one."""
    fakes.generator.scripts = deque(
        [saying("Nine."), saying("From the pier."), saying("Nine, pier."), saying("Yes.")]
    )
    body: Any = {"context_management": [{"type": "compaction", "compact_threshold": 1}]}
    first = await ask(client, input=[*TALK, QUESTION], **body)
    await ask(client, input="Sure?", previous_response_id=first["id"], **body)
    assert ("system", summarised("Nine.")) in prompt(fakes, -2)
    assert prompt(fakes) == [("system", "Be brief."), ("system", summarised("Nine, pier.")), ("user", "Sure?")]


@pytest.mark.parametrize(
    ("threshold", "window", "items", "calls"),
    [
        (100_000, 8192, [*TALK, QUESTION], 1),
        (5, 8192, [QUESTION], 1),
        (None, 8192, [*TALK, QUESTION], 1),
        (None, 6, [*TALK, QUESTION], 2),
        (None, 0, [*TALK, QUESTION], 1),
    ],
    ids=("short", "nothing-before", "window-has-room", "window-is-full", "no-window"),
)
async def test_the_threshold(
    client: httpx.AsyncClient, fakes: Any, threshold: int | None, window: int, items: Any, calls: int
) -> None:
    """Without a number, the threshold is most of the model's window."""
    fakes.generator.window = window
    entry = {"type": "compaction", "compact_threshold": threshold}
    await ask(client, input=items, context_management=[entry])
    assert len(fakes.generator.prompts) == calls


async def test_a_loop_of_tools_is_compacted(client: httpx.AsyncClient, fakes: Any) -> None:
    """The summary does not include the calls and outputs of the latest question."""
    body: Any = {"context_management": [{"type": "compaction", "compact_threshold": 1}]}
    loop = [QUESTION, *TALK[2:4]]
    await ask(client, input=[*TALK, *loop], **body)
    assert [role for role, _ in prompt(fakes)] == ["system", "system", "user", "assistant", "tool"]


async def test_a_model_that_quotes(client: httpx.AsyncClient, fakes: Any) -> None:
    """A model that only quotes cannot summarise. A request for a summary is refused, and an answer has none."""
    fakes.generator.only_quotes = True
    refused = await client.post(COMPACT, json={"model": "m", "input": TALK})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "model")
    body: Any = {"context_management": [{"type": "compaction", "compact_threshold": 1}]}
    assert [item["type"] for item in (await ask(client, input=[*TALK, QUESTION], **body))["output"]] == ["message"]


async def test_detectors_judge_a_summary(client: httpx.AsyncClient, fakes: Any) -> None:
    """Detectors judge a summary before its encryption and in each later request. Redacted text is not stored."""
    fakes.policy = Detectors(output=(Detector("words", Action.REDACT),))
    fakes.generator.scripts = deque([saying("It is secret.")])
    first = await ask(client, COMPACT, model="m", input=TALK)
    await ask(client, input=[*first["output"], QUESTION])
    assert "secret" not in str(prompt(fakes))

    fakes.policy = Detectors()
    fakes.generator.scripts = deque([saying("It is secret.")])
    second = await ask(client, COMPACT, model="m", input=TALK)
    fakes.policy = Detectors(input=(Detector("words", Action.REDACT),))
    answer = await ask(client, input=[*second["output"], QUESTION])
    assert "secret" not in str(prompt(fakes))
    listed = (await client.get(f"{PATH}/{answer['id']}/input_items", params={"order": "asc"})).json()["data"]
    assert [responses.item(item).type for item in listed] == ["message", "message", "message"]
    assert "secret" not in json.dumps(listed)


async def test_a_blocked_summary(client: httpx.AsyncClient, fakes: Any) -> None:
    """A request for a summary is refused or incomplete. The answer to a long conversation has no summary."""
    fakes.policy = Detectors(output=(Detector("words", Action.BLOCK),))
    fakes.generator.scripts = deque([saying("secret")])
    assert (await client.post(COMPACT, json={"model": "m", "input": TALK})).status_code == 400
    fakes.generator.scripts = deque([saying("secret")])
    trigger = await ask(client, input=[*TALK, {"type": "compaction_trigger"}])
    assert (trigger["status"], trigger["incomplete_details"]["reason"]) == ("incomplete", "content_filter")
    assert trigger["output"] == []
    fakes.generator.scripts = deque([saying("secret"), saying("Here.")])
    body: Any = {"context_management": [{"type": "compaction", "compact_threshold": 1}]}
    answer = await ask(client, input=[*TALK, QUESTION], **body)
    assert [item["type"] for item in answer["output"]] == ["message"]
    assert ("user", "When?") in prompt(fakes)


async def test_replaced_items_are_not_stored(client: httpx.AsyncClient, fakes: Any) -> None:
    """Replaced items are not stored. No model receives them, so no detector judges them."""
    item = (await ask(client, COMPACT, model="m", input=TALK))["output"][-1]
    passage = {"file_id": "d", "filename": "ferry.md", "text": "The ferry leaves at nine."}
    search = {"type": "file_search_call", "queries": ["ferry"], "results": [passage]}
    answer = await ask(client, input=[*TALK, search, item, QUESTION])
    assert "ferry" not in str(prompt(fakes))
    listed = (await client.get(f"{PATH}/{answer['id']}/input_items", params={"order": "asc"})).json()["data"]
    assert [(item["type"], item.get("role")) for item in listed] == [
        ("message", "developer"),
        ("message", "user"),
        ("compaction", None),
        ("message", "user"),
    ]
    assert responses.item(listed[2]).encrypted_content == item["encrypted_content"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"input": [{"type": "compaction", "encrypted_content": "x"}]}, "input[0].encrypted_content"),
        ({"input": [{"type": "compaction"}]}, "input[0].encrypted_content"),
        ({"input": "x", "context_management": [{"type": "other"}]}, "context_management[0].type"),
        ({"input": "x", "context_management": [{}]}, "context_management[0].type"),
        (
            {"input": "x", "context_management": [{"type": "compaction", "compact_threshold": 0}]},
            "context_management[0].compact_threshold",
        ),
    ],
)
async def test_invalid_members_are_refused(client: httpx.AsyncClient, body: Any, field: str) -> None:
    """The error names the position in the request."""
    refused = await client.post(PATH, json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)


async def test_other_members_of_a_request_for_a_summary_are_refused(client: httpx.AsyncClient) -> None:
    """A request for a summary cannot store, stream or have tools."""
    for name in ("store", "stream", "tools"):
        refused = await client.post(COMPACT, json={"model": "m", "input": "x", name: True})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, name)
