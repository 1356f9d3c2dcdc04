"""The chat completion request of a conversation."""

import json

import pytest
from generator.domain import ChatMessage, Conversation
from generator.openai.request import request_body


def body(*messages: ChatMessage, parameters: bytes = b"{}") -> dict[str, object]:
    request: dict[str, object] = json.loads(request_body(Conversation(messages, parameters_json=parameters), "m"))
    return request


def test_a_request_asks_for_a_stream_with_usage() -> None:
    """The request has the messages and the model, and asks for a stream with usage."""
    assert body(ChatMessage("system", "Be brief."), ChatMessage("user", "Hi")) == {
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize("flag", ["in_one_piece", "unary"])
def test_a_request_for_an_answer_in_one_piece_has_no_stream(flag: str) -> None:
    """A request without a stream has no stream options."""
    parameters = b'{"n":2,"stream_options":{"x":1}}'
    prompt = Conversation((ChatMessage("user", "Hi"),), parameters_json=parameters, **{flag: True})  # type: ignore[arg-type]  # a flag
    assert json.loads(request_body(prompt, "m")) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "n": 2,
    }


def test_parameters_stay_byte_for_byte() -> None:
    """The request has the caller's values byte for byte."""
    parameters = b'{"temperature": 0.70, "tools":[ {"x": 1e3} ], "logit_bias":{"50256": -100}}'
    request = request_body(Conversation((ChatMessage("user", "Hi"),), parameters_json=parameters), "m")
    for piece in (b"0.70", b'[ {"x": 1e3} ]', b'{"50256": -100}'):
        assert piece in request


def test_other_stream_options_are_kept() -> None:
    """The request asks for usage and keeps the other stream options. A null counts as none."""
    sent = body(ChatMessage("user", "Hi"), parameters=b'{"stream_options":{"include_usage":false,"x":1}}')
    assert sent["stream_options"] == {"include_usage": True, "x": 1}
    sent = body(ChatMessage("user", "Hi"), parameters=b'{"stream_options":null}')
    assert sent["stream_options"] == {"include_usage": True}


def test_parts_and_other_members_of_messages_are_kept() -> None:
    """Parts, names and tool calls are in the messages. A message with tool calls only has null content."""
    parts = b'[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"data:,"}}]'
    request = body(
        ChatMessage("user", content_json=parts, extra_json=b'{"name":"Ann"}'),
        ChatMessage("assistant", extra_json=b'{"tool_calls":[{"id":"1"}]}'),
        ChatMessage("tool", "42", extra_json=b'{"tool_call_id":"1"}'),
        ChatMessage("assistant", ""),
    )
    assert request["messages"] == [
        {"role": "user", "content": json.loads(parts), "name": "Ann"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "42", "tool_call_id": "1"},
        {"role": "assistant", "content": ""},
    ]


def test_earlier_reasoning_is_in_the_configured_member() -> None:
    """Earlier reasoning is in the configured member, or is omitted."""
    message = ChatMessage("assistant", "At nine.", extra_json=b'{"earlier_reasoning":"Hm."}')
    for member, more in (("reasoning_content", {"reasoning_content": "Hm."}), ("", {})):
        request = json.loads(request_body(Conversation((message,)), "m", member))
        assert request["messages"] == [{"role": "assistant", "content": "At nine."} | more]


def test_a_plain_conversation_becomes_a_text_completion() -> None:
    """A plain conversation becomes a text completion with its parameters."""
    prompt = Conversation((ChatMessage("user", "Once"),), parameters_json=b'{"echo":true}', plain=True)
    assert json.loads(request_body(prompt, "m")) == {
        "model": "m",
        "prompt": "Once",
        "stream": True,
        "stream_options": {"include_usage": True},
        "echo": True,
    }
