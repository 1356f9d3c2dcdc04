"""The tables of docs/responses.md are complete and correct."""

import json
import re
import typing
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
from causeway_testing import responses
from gateway.dialects.responses import items, request
from gateway.domain import Action, Delta, Detector, Detectors, Finish, Start
from openai.types.responses import (
    Response,
    ResponseIncludable,
    ResponseInputItem,
    ResponseOutputItem,
    ResponseStreamEvent,
    Tool,
    response_create_params,
)
from servicekit.errors import Unavailable

ROOT = Path(__file__).resolve().parents[5]
PATH = "/v1/responses"
STATES = ("supported", "ignored", "refused", "not sent", "out of scope")
PAGE = (ROOT / "docs" / "responses.md").read_text().partition("## The reference, property by property")[2]
SEARCH = {"type": "file_search", "vector_store_ids": ["docs"]}


def rows() -> dict[str, list[tuple[str, str, str]]]:
    """Return the rows of each table: a property, its state and its test."""
    rows_by_table = {}
    for part in PAGE.split("\n### ")[1:]:
        found = re.findall(r"^\| `([^`]+)` \| ([a-z ]+) \| [^|]* \| `(\w+)` \|$", part, re.MULTILINE)
        rows_by_table[part.partition("\n")[0]] = found
    return rows_by_table


ROWS = rows()
TABLES = {table: {name: (state, test) for name, state, test in found} for table, found in ROWS.items()}


def named(table: str, *states: str) -> set[str]:
    """Return the properties of a table that have one of these states."""
    return {name for name, (state, _) in TABLES[table].items() if state in states}


def kinds(union: Any) -> set[str]:
    """Return the values of `type` in a union of the package's types."""
    members = typing.get_args(union)
    if typing.get_origin(union) is typing.Annotated:
        members = typing.get_args(members[0])
    values: set[str] = set()
    for member in members:
        annotation = member.model_fields["type"].annotation
        for each in (annotation, *typing.get_args(annotation)):
            values |= {value for value in typing.get_args(each) if isinstance(value, str)}
    return values


@pytest.mark.parametrize(
    ("table", "properties"),
    [
        ("Request", set(typing.get_type_hints(response_create_params.ResponseCreateParamsNonStreaming))),
        ("Response", set(Response.model_fields)),
        ("Items of an input", kinds(ResponseInputItem)),
        ("Tools", kinds(Tool)),
        ("Values of `include`", set(typing.get_args(ResponseIncludable))),
        ("Items of an output", kinds(ResponseOutputItem)),
        ("Events", kinds(ResponseStreamEvent)),
    ],
)
def test_the_tables_are_complete(table: str, properties: set[str]) -> None:
    """Each property of the package's types is listed once, with a state and an existing test."""
    assert sorted(name for name, *_ in ROWS[table]) == sorted(properties)
    tests = Path(__file__).parents[2]
    files = [*Path(__file__).parent.glob("test_*.py"), *(tests / "routes").glob("test_*.py")]
    written = "\n".join(path.read_text() for path in files)
    for state, test in TABLES[table].values():
        assert state in STATES
        assert f"def {test}(" in written, test


def test_the_request_is_read_as_the_table_says() -> None:
    """The table lists exactly the properties that the code reads."""
    assert named("Request", "supported") == set(request.READ) == set(TABLES["Request"])
    assert set(request.INCLUDABLE) == set(TABLES["Values of `include`"])


def test_the_tables_are_counted() -> None:
    """The page has the right number of properties for each state, and the right percentage of supported ones."""
    counts = Counter(state for table in TABLES.values() for state, _ in table.values())
    scope = counts.total() - counts["out of scope"]
    listed = ", ".join(f"{counts[state]} {state}" for state in STATES[1:-1])
    percentage = round(100 * counts["supported"] / scope)
    sentence = (
        f"Of {counts.total()} properties, {scope} are in scope: "
        f"{counts['supported']} supported ({percentage} %), {listed}."
    )
    assert sentence in " ".join(PAGE.split())


async def test_unknown_members_are_refused(client: httpx.AsyncClient) -> None:
    """A member outside the table is refused, and the error names it."""
    refused = await client.post(PATH, json={"input": "When?", "functions": []})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "functions")


async def test_unknown_items_are_refused(client: httpx.AsyncClient) -> None:
    """An item outside the table is refused, and the error names its position."""
    items = [{"role": "user", "content": "When?"}, {"type": "thought", "id": "x"}]
    answer = await client.post(PATH, json={"input": items, "store": False})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input[1].type")
    assert not named("Items of an input", "refused", "ignored")


async def test_items_of_unsupported_tools_are_dropped(client: httpx.AsyncClient, fakes: Any) -> None:
    """A header lists the dropped items. Neither the model nor the store receives them."""
    dropped = sorted(named("Items of an input", "out of scope"))
    assert set(dropped) == set(items.UNSUPPORTED)
    items_sent = [{"role": "user", "content": "When?"}, *({"type": kind, "id": "x"} for kind in dropped)]
    answer = await client.post(PATH, json={"input": items_sent})
    assert answer.headers["x-causeway-dropped-items"] == ", ".join(dropped)
    assert [message.role for message in fakes.generator.prompts[0].messages] == ["user"]
    listed = (await client.get(f"{PATH}/{answer.json()['id']}/input_items")).json()["data"]
    assert [item["type"] for item in listed] == ["message"]


async def test_every_unsupported_tool_is_dropped(client: httpx.AsyncClient) -> None:
    """A header lists the dropped tools."""
    dropped = sorted(named("Tools", "out of scope"))
    body = {"input": "When?", "tools": [{"type": kind} for kind in dropped], "store": False}
    answer = await client.post(PATH, json=body)
    assert answer.headers["x-causeway-dropped-tools"] == ", ".join(dropped)


async def test_every_value_of_include(client: httpx.AsyncClient) -> None:
    """Each value of the table is accepted."""
    assert (
        await client.post(PATH, json={"input": "When?", "include": list(TABLES["Values of `include`"])})
    ).status_code == 200


@pytest.mark.parametrize("tier", ["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"])
async def test_the_service_tier(client: httpx.AsyncClient, tier: str) -> None:
    """The response has the tier `default`. An unknown tier is refused."""
    answer = await client.post(PATH, json={"input": "When?", "service_tier": tier})
    assert responses.response(answer.json()).service_tier == "default"
    refused = await client.post(PATH, json={"input": "When?", "service_tier": "none"})
    assert refused.json()["error"]["param"] == "service_tier"


async def test_pieces_are_padded(client: httpx.AsyncClient) -> None:
    """With `include_obfuscation`, each piece is padded to a multiple of 32 characters."""
    for options, lengths in (({"include_obfuscation": True}, {0}), ({}, {None})):
        answer = await client.post(PATH, json={"input": "When?", "stream": True, "stream_options": options})
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
        pieces = [event for event in events if event["type"] == "response.output_text.delta"]
        assert len(pieces) == 3
        padded = [len(piece["delta"] + piece["obfuscation"]) % 32 if options else None for piece in pieces]
        assert set(padded) == lengths
        assert all(("obfuscation" in piece) == bool(options) for piece in pieces)


async def test_truncation(client: httpx.AsyncClient, fakes: Any) -> None:
    """The oldest exchanges are omitted, calls together with their outputs. The complete input is stored."""
    fakes.generator.window = 300
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    conversation = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "old " * 200},
        call,
        {"type": "function_call_output", "call_id": "c", "output": "it " * 100},
        {"role": "assistant", "content": "So."},
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "Two."},
        {"role": "user", "content": "When?"},
    ]
    answer = responses.response(
        (await client.post(PATH, json={"input": conversation, "truncation": "auto"})).json()
    )
    assert answer.truncation == "auto"
    prompt = [message.text for message in fakes.generator.prompts[0].messages]
    assert prompt == ["Be brief.", "One?", "Two.", "When?"]
    listed = (await client.get(f"{PATH}/{answer.id}/input_items")).json()["data"]
    assert len(listed) == len(conversation)


async def test_pictures_are_listed(client: httpx.AsyncClient) -> None:
    """A stored picture is listed with its address."""
    url = "data:image/png;base64,AA=="
    conversation = [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]
    answer = (await client.post(PATH, json={"input": conversation})).json()
    query = {"include[]": "message.input_image.image_url"}
    [listed] = (await client.get(f"{PATH}/{answer['id']}/input_items", params=query)).json()["data"]
    assert responses.item(listed).content[0].image_url == url


async def test_the_members_of_a_response(client: httpx.AsyncClient) -> None:
    """A response has the supported members of the table, and the gateway's own."""
    answer = (await client.post(PATH, json={"input": "When?"})).json()
    assert answer.keys() - responses.OURS == named("Response", "supported")


def beside(members: dict[str, Any]) -> Delta:
    return Delta(0, "", json.dumps(members).encode())


def call(name: str) -> Delta:
    function = {"name": name, "arguments": '{"input":"x"}'}
    return beside({"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": function}]})


async def test_the_items_and_events_that_are_sent(client: httpx.AsyncClient, fakes: Any) -> None:
    """Answers of every kind send exactly the supported events and items of the tables.

    Only responses in the background send `response.queued`.
    """
    tools = [SEARCH, {"type": "function", "name": "find"}, {"type": "custom", "name": "run"}]
    thought, stop = beside({"reasoning_content": "Hm."}), [Finish(0, "stop")]
    scripts: list[tuple[list[Any], dict[str, Any]]] = [
        ([[Start(b"{}"), Delta(0, "At nine [guide-1.pdf#page=1].")], stop], {}),
        ([[thought, call("find")], stop], {}),
        ([[thought, call("run")], stop], {"reasoning": {"summary": "auto"}}),
        ([[beside({"refusal": "No."})], stop], {}),
        ([[Delta(0, "At")], Unavailable("Gone.")], {}),
        ([[Delta(0, "secret")], stop], {}),
    ]
    events, items = set(), set()
    for script, more in scripts:
        fakes.generator.script = script
        if script[0] == [Delta(0, "secret")]:
            fakes.policy = Detectors(output=(Detector("words", Action.BLOCK),))
        body = {"input": "When?", "tools": tools, "stream": True, "store": False, **more}
        for event in responses.events((await client.post(PATH, json=body)).text):
            events.add(event.type)
            items |= {event.item.type} if hasattr(event, "item") else set()
    body = {"input": [{"role": "user", "content": "When?"}, {"type": "compaction_trigger"}], "stream": True}
    fakes.generator.script, fakes.policy = [[Start(b"{}"), Delta(0, "So.")], stop], Detectors()
    for event in responses.events((await client.post(PATH, json=body)).text):
        events.add(event.type)
        items |= {event.item.type} if hasattr(event, "item") else set()
    in_the_background = {"response.queued"}
    assert events == named("Events", "supported") - in_the_background
    assert items == named("Items of an output", "supported")
