"""A conversation as a chat completion request."""

import json

import pytest
from generator.domain import ChatMessage, Conversation
from generator.openai.request import request_body


def body(*messages: ChatMessage, parameters: bytes = b"{}") -> dict[str, object]:
    made: dict[str, object] = json.loads(request_body(Conversation(messages, parameters_json=parameters), "m"))
    return made


def test_messages_and_model_are_there_and_a_stream_with_usage_is_asked_for() -> None:
    """The request is what a model server needs, and the events need."""
    assert body(ChatMessage("system", "Be brief."), ChatMessage("user", "Hi")) == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize("flag", ["in_one_piece", "unary"])
def test_an_answer_in_one_piece_is_asked_for_as_such(flag: str) -> None:
    """No stream, and no options of one."""
    parameters = b'{"n":2,"stream_options":{"x":1}}'
    prompt = Conversation((ChatMessage("user", "Hi"),), parameters_json=parameters, **{flag: True})  # type: ignore[arg-type]  # a flag
    assert json.loads(request_body(prompt, "m")) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "n": 2,
    }


def test_parameters_cross_byte_for_byte() -> None:
    """Values that are not modelled stand in the request as the caller wrote them."""
    parameters = b'{"temperature": 0.70, "tools":[ {"x": 1e3} ], "logit_bias":{"50256": -100}}'
    made = request_body(Conversation((ChatMessage("user", "Hi"),), parameters_json=parameters), "m")
    for piece in (b"0.70", b'[ {"x": 1e3} ]', b'{"50256": -100}'):
        assert piece in made


def test_other_stream_options_are_kept() -> None:
    """Usage is added to what the caller asked for, a null counts as nothing."""
    asked = body(ChatMessage("user", "Hi"), parameters=b'{"stream_options":{"include_usage":false,"x":1}}')
    assert asked["stream_options"] == {"include_usage": True, "x": 1}
    asked = body(ChatMessage("user", "Hi"), parameters=b'{"stream_options":null}')
    assert asked["stream_options"] == {"include_usage": True}


def test_parts_and_further_members_of_messages_cross() -> None:
    """Lists of parts, names and tool calls stand in the message; a message that only calls has no content."""
    parts = b'[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:,"}}]'
    made = body(
        ChatMessage("user", content_json=parts, extra_json=b'{"name":"Ann"}'),
        ChatMessage("assistant", extra_json=b'{"tool_calls":[{"id":"1"}]}'),
        ChatMessage("tool", "42", extra_json=b'{"tool_call_id":"1"}'),
        ChatMessage("assistant", ""),
    )
    assert made["messages"] == [
        {"role": "user", "content": json.loads(parts), "name": "Ann"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "42", "tool_call_id": "1"},
        {"role": "assistant", "content": ""},
    ]


def test_earlier_reasoning() -> None:
    """The server gets it in the member that it takes it in, and not at all where it takes none."""
    message = ChatMessage("assistant", "At nine.", extra_json=b'{"earlier_reasoning":"Hm."}')
    for member, more in (("reasoning_content", {"reasoning_content": "Hm."}), ("", {})):
        made = json.loads(request_body(Conversation((message,)), "m", member))
        assert made["messages"] == [{"role": "assistant", "content": "At nine."} | more]


def test_a_text_to_go_on_with_is_a_prompt() -> None:
    """It is asked for as a text completion, whose parameters cross as they came."""
    prompt = Conversation((ChatMessage("user", "Once"),), parameters_json=b'{"echo":true}', plain=True)
    assert json.loads(request_body(prompt, "m")) == {
        "model": "m",
        "prompt": "Once",
        "stream": True,
        "stream_options": {"include_usage": True},
        "echo": True,
    }
