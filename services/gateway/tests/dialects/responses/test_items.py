"""Input items become messages of a chat."""

import json
from typing import Any

import pytest
from gateway.dialects.responses import items
from gateway.dialects.responses.conversation import Conversation
from servicekit.errors import InvalidRequest


def chat(*given: Any) -> list[dict[str, Any]]:
    conversation = Conversation()
    items.read(given, conversation)
    return conversation.messages


def test_messages_of_every_role() -> None:
    """The type of a message is optional. A developer message becomes a system message. Text parts remain parts."""
    assert chat(
        {"role": "developer", "content": "Be brief."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "When?"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "At nine.", "annotations": []}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    ) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "When?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "At nine."}]},
        {"role": "assistant", "content": [{"type": "text", "text": "No."}]},
    ]


def test_calls_belong_to_the_answer_before_them() -> None:
    """Consecutive calls are one message.

    A custom tool's input becomes an argument. Outputs are messages of tools.
    """
    messages = chat(
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "a", "name": "find", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "b", "name": "run", "input": 'say "x"'},
        {"type": "function_call_output", "call_id": "a", "output": "none"},
        {"type": "custom_tool_call_output", "call_id": "b", "output": [{"type": "input_text", "text": "x"}]},
    )
    assert [message["role"] for message in messages] == ["assistant", "tool", "tool"]
    first, second = messages[0]["tool_calls"]
    assert (first["id"], first["function"]) == ("a", {"name": "find", "arguments": "{}"})
    assert json.loads(second["function"]["arguments"]) == {"input": 'say "x"'}
    assert [(message["tool_call_id"], message["content"]) for message in messages[1:]] == [
        ("a", "none"),
        ("b", [{"type": "text", "text": "x"}]),
    ]


def test_pictures_and_files() -> None:
    """Pictures and files with their content are accepted. A file's id or address is refused."""
    picture = {"type": "input_image", "image_url": "data:image/png;base64,x", "detail": "low"}
    file = {"type": "input_file", "file_data": "data:application/pdf;base64,x", "filename": "a.pdf"}
    [message] = chat({"role": "user", "content": [picture, file]})
    assert message["content"] == [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,x", "detail": "low"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,x", "filename": "a.pdf"}},
    ]
    for part, name in (
        ({"type": "input_image", "file_id": "file-1"}, "file_id"),
        ({"type": "input_file", "file_url": "https://x"}, "file_url"),
    ):
        with pytest.raises(InvalidRequest, match=rf"input\[0\].content\[0\].{name}"):
            chat({"role": "user", "content": [part]})


def test_reasoning_belongs_to_the_next_answer() -> None:
    """The pieces of reasoning before an answer are joined. Reasoning that no answer follows is omitted.

    The items remain unchanged.
    """
    conversation = Conversation()
    thoughts = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "encrypted_content": "abc"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Nine?"}]},
    ]
    call = {"type": "function_call", "call_id": "c", "name": "find", "arguments": "{}"}
    given = [*thoughts, {"role": "assistant", "content": "I look."}, thoughts[1], call, thoughts[0]]
    stored = items.read(
        [*given, {"role": "user", "content": "So?"}, {"role": "assistant", "content": "Yes."}], conversation
    )
    assert [message.get("earlier_reasoning") for message in conversation.messages] == [
        "Hm.\nNine?",
        "Nine?",
        None,
        None,
    ]
    assert stored[:2] == thoughts


def test_an_earlier_search() -> None:
    """The model gets the passages of an earlier search. A search without passages adds no message."""
    search = {"type": "file_search_call", "queries": ["ferry"], "results": None, "status": "completed"}
    result = {"file_id": "file-1", "filename": "a.pdf", "text": "At nine.", "score": 0.5, "attributes": {}}
    assert chat(search) == []
    [message] = chat(search | {"results": [result]})
    assert (message["role"], message["content"].endswith("'ferry':\na.pdf: At nine.")) == ("system", True)
    stored = Conversation()
    items.read([search | {"results": [result]}], stored, "")
    assert stored.messages == []


@pytest.mark.parametrize(
    ("item", "path"),
    [
        (1, "input[0]"),
        ({"role": "critic", "content": "x"}, "input[0].role"),
        ({"role": "user"}, "input[0].content"),
        ({"role": "user", "content": [1]}, "input[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "input[0].content[0].type"),
        ({"type": "function_call", "name": "x"}, "input[0].call_id"),
        ({"type": "function_call_output", "call_id": "x"}, "input[0].output"),
        ({"type": "computer_call"}, "input[0].type"),
    ],
)
def test_invalid_items_are_refused(item: Any, path: str) -> None:
    """The error names the position in the request."""
    with pytest.raises(InvalidRequest) as refused:
        chat(item)
    assert refused.value.field == path


def test_an_input_is_a_text_or_a_list() -> None:
    """A text is one message of the user."""
    assert items.listed("When?") == [{"type": "message", "role": "user", "content": "When?"}]
    with pytest.raises(InvalidRequest):
        items.listed(3)
