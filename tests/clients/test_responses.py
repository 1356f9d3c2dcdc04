"""Clients of the Responses API: tools over several turns, streams, conversations and hand-offs."""

import json
from pathlib import Path
from typing import Any

import pytest
from causeway_testing.model_answers import DONE, STREAM, Answer, Fault, chunk, sse
from causeway_testing.recipes import NODE, PYTHON

pytestmark = pytest.mark.asyncio(loop_scope="session")

HERE = Path(__file__).parent
ANSWER = "4 January to 19 March 2027"
FILE = "brannoch-bridge-maintenance-plan.pdf"
PLACE = {"place": "Kelsay"}
TIDE = {"place": "Kelsay", "hour": 6}
CALL = ["tide", PLACE]


def streamed_text(text: str) -> Answer:
    """Return a model's answer as a stream of two pieces."""
    pieces = (text[: len(text) // 2], text[len(text) // 2 :])
    chunks = (sse(chunk({"content": piece})) for piece in pieces)
    return Answer((*chunks, sse(chunk({}, "stop")), DONE), content_type=STREAM)


def streamed_call(name: str, arguments: dict[str, Any]) -> Answer:
    """Return a model's tool call as a stream."""
    call = {"index": 0, "id": "call_1", "type": "function"}
    call["function"] = {"name": name, "arguments": json.dumps(arguments)}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return Answer((sse(chunk(message)), sse(chunk({}, "tool_calls")), DONE), content_type=STREAM)


TIDE_CALL = streamed_call("tide", PLACE)
SIX = streamed_text("At six.")
PARSED = streamed_text(json.dumps(TIDE))


async def test_openai_for_python(platform: Any) -> None:
    """File search with citations, a tool over two turns, parsing, conversations, reading and deleting work."""
    platform.model.script(TIDE_CALL, SIX, PARSED, SIX, SIX)
    found = await platform.outcome(PYTHON, HERE / "python" / "responses_client.py")
    assert ANSWER in found["text"]
    assert found["deltas"] == found["streamed"] == found["text"]
    assert found["kinds"] == ["file_search_call", "message"]
    assert FILE in found["cited"]
    assert (found["tool"], found["after_tool"], found["parsed"]) == (CALL, "At six.", TIDE)
    assert found["conversation"] == ["user", "assistant"] * 2
    assert (found["read"], found["input_items"]) == ("At six.", ["function_call_output"])
    assert (found["tokens"], found["error"]) == (True, [404, True])


async def test_openai_for_python_in_the_background(platform: Any) -> None:
    """Polling, rereading, resuming and cancelling a background response work with the package's strict
    validation.
    """
    platform.model.script(Answer((sse(chunk({"content": "At six, "})), Fault.HANG), content_type=STREAM))
    found = await platform.outcome(PYTHON, HERE / "python" / "background_client.py")
    assert found["accepted"] == ["queued", True, []]
    status, text = found["polled"]
    assert (status, ANSWER in text) == ("completed", True)
    assert found["numbers"] == list(range(len(found["numbers"])))
    assert found["first"] == ["response.created", "response.queued", "response.in_progress"]
    assert found["last"] == "response.completed"
    assert found["again"] == [True] * len(found["numbers"])
    assert found["resumed"]
    assert (found["cancelled"], found["cancelled_again"]) == ("cancelled", "cancelled")
    assert (found["delta"], found["end"]) == ("At six, ", ["response.failed", "cancelled"])
    assert found["kept"] == ["cancelled", "At six, "]


async def test_openai_for_node(platform: Any) -> None:
    """A tool over two turns, a stream, parsing, a conversation, reading and deleting work."""
    platform.model.script(TIDE_CALL, SIX, SIX, PARSED, SIX)
    assert await platform.outcome(NODE, HERE / "node" / "responses.mjs", "openai") == {
        "tool": CALL,
        "after_tool": "At six.",
        "streamed": "At six.",
        "parsed": TIDE,
        "conversation": ["user", "assistant"],
        "read": "At six.",
        "error": ["NotFoundError", 404],
    }


async def test_openai_for_node_in_the_background(platform: Any) -> None:
    """Polling a background response works, and so does rereading it from each event, and cancelling it in
    mid-stream.
    """
    platform.model.script(Answer((sse(chunk({"content": "At six, "})), Fault.HANG), content_type=STREAM))
    found = await platform.outcome(NODE, HERE / "node" / "responses.mjs", "background")
    assert found["accepted"] == ["queued", True]
    status, text = found["polled"]
    assert (status, ANSWER in text) == ("completed", True)
    assert found["numbers"] == list(range(len(found["numbers"])))
    assert found["ends"] == ["response.created", "response.completed"]
    assert found["again"] == [True] * len(found["numbers"])
    assert (found["cancelled"], found["seen"]) == ("cancelled", ["At six, ", "response.failed", "cancelled"])
    assert found["kept"] == ["cancelled", "At six, "]


async def test_the_vercel_ai_sdk(platform: Any) -> None:
    """The default provider works over two turns. The second turn refers to items of the first by their ids."""
    platform.model.script(TIDE_CALL, SIX, streamed_text("At seven."))
    assert await platform.outcome(NODE, HERE / "node" / "responses.mjs", "aiSdk") == {
        "tool": [CALL],
        "after_tool": "At six.",
        "second_turn": "At seven.",
    }


async def test_the_agents_sdk(platform: Any) -> None:
    """Function tools, a second turn, file search and a hand-off to another agent work."""
    hand_off = streamed_call("transfer_to_clerk", {})
    platform.model.script(TIDE_CALL, SIX, streamed_text("At seven."), hand_off, SIX)
    found = await platform.outcome(PYTHON, HERE / "python" / "agents_client.py")
    assert (found["tool"], found["second_turn"]) == ("At six.", "At seven.")
    assert ANSWER in found["search"]
    assert (found["searched"], found["searched_again"]) == (["file_search_call"], True)
    assert found["handed_to"] == ["Clerk", "At six."]
