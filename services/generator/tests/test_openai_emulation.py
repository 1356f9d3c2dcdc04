"""The OpenAI API for models whose server does not have it."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from generator.domain import ChatMessage, Event, EventKind, Usage
from generator.openai_emulation import Writer, parse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from servicekit.errors import InvalidRequest

MESSAGES = [{"role": "user", "content": "Hi"}]
EVENTS = (
    Event(EventKind.START),
    Event(EventKind.TEXT, 0, "a"),
    Event(EventKind.TEXT, 1, "b"),
    Event(EventKind.TEXT, 0, "c"),
    Event(EventKind.FINISH, 0, "stop"),
    Event(EventKind.FINISH, 1, "length"),
    Event(EventKind.USAGE, usage=Usage(3, 4, exact=True)),
)


def body(**members: Any) -> bytes:
    return json.dumps({"messages": MESSAGES, **members}).encode()


async def from_model(closed: list[bool]) -> AsyncGenerator[Event, None]:
    try:
        for event in EVENTS:
            yield event
    finally:
        closed.append(True)


def answer(document: bytes, closed: list[bool]) -> AsyncGenerator[Event, None]:
    return Writer("mine", "chatcmpl-1", 1_700_000_000).answer(parse(document), from_model(closed))


async def answered(document: bytes) -> list[Event]:
    return [event async for event in answer(document, [])]


def test_a_request_becomes_a_conversation() -> None:
    """A request becomes a conversation with all members of the messages, the parameters, and the form of the
    answer. A member that is null counts as missing.
    """
    messages = [
        {"role": "system", "content": "Be kind.", "name": "x"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": None, "tool_calls": []},
    ]
    document = {
        "model": "m",
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
        "n": 2,
        "x": 1.50,
    }
    request = parse(json.dumps(document).encode())
    assert request.conversation.messages == (
        ChatMessage("system", "Be kind.", extra_json=b'{"name":"x"}'),
        ChatMessage("user", content_json=b'[{"type": "text", "text": "Hi"}]'),
        ChatMessage("assistant", extra_json=b'{"tool_calls":[]}'),
    )
    assert json.loads(request.conversation.parameters_json) == {"n": 2, "x": 1.5}
    assert (request.stream, request.with_usage, request.choices) == (True, True, 2)
    plain = parse(body(stream=None, stream_options=None, n=None))
    assert (plain.stream, plain.with_usage, plain.choices) == (False, False, 1)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        (b"[]", None),
        (b"{", None),
        (b"{}", "messages"),
        (b'{"messages":[]}', "messages"),
        (b'{"messages":[{"content":"Hi"}]}', "messages[0].role"),
        (b'{"messages":[{"role":"user","content":1}]}', "messages[0].content"),
        (b'{"messages":[{"role":"user"}],"stream":"yes"}', "stream"),
        (b'{"messages":[{"role":"\xff"}]}', "messages[0]"),
        (b'{"messages":[{"role":"user"}],"\xff":1}', None),
        (b'{"messages":' + b"[" * 50_000, None),
    ],
)
def test_an_invalid_request_is_refused(document: bytes, field: str | None) -> None:
    """An invalid request is refused with the path of the wrong member."""
    with pytest.raises(InvalidRequest) as caught:
        parse(document)
    assert caught.value.field == field


async def test_a_stream_consists_of_chunks() -> None:
    """A stream has roles, texts and reasons. If the request asks for usage, the last chunk has it, and the others
    have null.
    """
    events = await answered(body(stream=True, n=2, stream_options={"include_usage": True}))
    assert {event.kind for event in events} == {EventKind.CHUNK}
    chunks = [ChatCompletionChunk.model_validate_json(event.raw_json, strict=True) for event in events]
    pieces = [(chunk.choices[0].index, chunk.choices[0].delta.content) for chunk in chunks[:-1]]
    assert pieces == [(0, ""), (1, ""), (0, "a"), (1, "b"), (0, "c"), (0, None), (1, None)]
    assert [chunk.choices[0].finish_reason for chunk in chunks[5:7]] == ["stop", "length"]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 7
    assert all(json.loads(event.raw_json)["usage"] is None for event in events[:-1])
    assert all("usage" not in json.loads(event.raw_json) for event in await answered(body(stream=True, n=2)))


async def test_an_answer_in_one_piece_is_a_completion() -> None:
    """A completion has the text and the finish reason of each choice, and the usage."""
    (event,) = await answered(body(n=2))
    completion = ChatCompletion.model_validate_json(event.raw_json, strict=True)
    assert [(choice.message.content, choice.finish_reason) for choice in completion.choices] == [
        ("ac", "stop"),
        ("b", "length"),
    ]
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (3, 4)


async def test_closing_an_answer_closes_the_models_answer() -> None:
    """If the reader closes a stream early, the model's answer is closed at once."""
    closed: list[bool] = []
    chunks = answer(body(stream=True), closed)
    await anext(chunks)
    await chunks.aclose()
    assert closed == [True]
