"""The extractive model behind the port of models."""

import json
from typing import Any

import pytest
from generator.domain import ChatMessage, Conversation, Event, EventKind, OpenAIRequest, Source
from generator.extractive.answer import NO_SOURCES
from generator.extractive.model import ExtractiveModel, Wanted, worded
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from servicekit.errors import InvalidRequest

SOURCE = Source("freight.md", "A pallet may weigh up to 900 kg.", 1.0)
ANSWER = "A pallet may weigh up to 900 kg. [freight.md]"
HI = {"messages": [{"role": "user", "content": "Hi"}]}


def prompt(question: str = "How heavy may a pallet be?", parameters: bytes = b"{}") -> Conversation:
    return Conversation((ChatMessage("user", "Question and sources"),), (SOURCE,), parameters, question)


async def events_of(asked: Conversation | dict[str, Any]) -> list[Event]:
    model = ExtractiveModel("mine", clock=lambda: 1_700_000_000.9)
    given = OpenAIRequest(json.dumps(asked).encode()) if isinstance(asked, dict) else asked
    return [event async for event in model.generate(given)]


def said(events: list[Event], choice: int = 0) -> str:
    return "".join(event.text for event in events if event.kind is EventKind.TEXT and event.choice == choice)


async def test_it_answers_word_by_word() -> None:
    """The model yields a TEXT event for each word, the end, and the counted tokens."""
    events = await events_of(prompt())
    assert said(events) == ANSWER
    assert events[1].text == "A"
    usage = events[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.exact) == (3, 9, True)


async def test_without_a_question_the_last_user_message_is_it() -> None:
    """Without a question, the last user message is the question."""
    asked = Conversation(
        (ChatMessage("user", "How heavy may a pallet be?"), ChatMessage("assistant", "Light.")), (SOURCE,)
    )
    assert said(await events_of(asked)) == ANSWER


async def test_parameters_are_kept() -> None:
    """The model respects the limit of tokens, stop strings and the number of choices. Each choice has the same text
    and its own end.
    """
    events = await events_of(prompt(parameters=b'{"max_tokens":3,"n":2,"temperature":0.5,"x":{}}'))
    assert [said(events, choice) for choice in (0, 1)] == ["A pallet may"] * 2
    ends = [(event.choice, event.text) for event in events if event.kind is EventKind.FINISH]
    assert ends == [(0, "length"), (1, "length")]
    assert events[-1].usage is not None
    assert events[-1].usage.completion_tokens == 6
    assert said(await events_of(prompt(parameters=b'{"stop":[" up"]}'))) == "A pallet may weigh"


@pytest.mark.parametrize(
    ("parameters", "field"),
    [(b'{"max_tokens":"x"}', "max_tokens"), (b'{"n":0}', "n"), (b'{"stop":[1]}', "stop[0]")],
)
async def test_bad_parameters_are_refused_by_name(parameters: bytes, field: str) -> None:
    """A bad parameter is refused by name."""
    with pytest.raises(InvalidRequest) as caught:
        await events_of(prompt(parameters=parameters))
    assert caught.value.field == field


async def test_a_request_gets_a_completion_of_the_openai_api() -> None:
    """A request gets a valid completion with the number of tokens. It says that there are no sources."""
    (event,) = await events_of({**HI, "n": 2})
    completion = ChatCompletion.model_validate_json(event.raw_json, strict=True)
    assert [choice.message.content for choice in completion.choices] == [NO_SOURCES] * 2
    assert [(choice.index, choice.finish_reason) for choice in completion.choices] == [(0, "stop"), (1, "stop")]
    assert (completion.model, completion.created) == ("mine", 1_700_000_000)
    usage = completion.usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (1, 24, 25)


async def test_a_streamed_request_gets_chunks_of_the_openai_api() -> None:
    """A streamed request gets the role, the words, the reason, and the usage if it asks for it, all with one id."""
    events = await events_of({**HI, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 2})
    chunks = [ChatCompletionChunk.model_validate_json(event.raw_json, strict=True) for event in events]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "I answer"
    assert chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert len({chunk.id for chunk in chunks}) == 1
    plain = await events_of({**HI, "stream": True})
    assert all("usage" not in json.loads(event.raw_json) for event in plain)


async def test_the_same_request_has_the_same_answer() -> None:
    """Equal requests at the same time get equal events."""
    assert await events_of({**HI, "seed": 1}) == await events_of({**HI, "seed": 1})


@pytest.mark.parametrize(
    ("asked", "parameter"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": [{"content": "Hi"}]}, "messages[0].role"),
        ({**HI, "max_tokens": 0}, "max_tokens"),
        ({**HI, "n": "two"}, "n"),
    ],
)
async def test_a_bad_request_is_refused_by_its_parameter(asked: dict[str, Any], parameter: str) -> None:
    """The error has the path of the wrong parameter."""
    with pytest.raises(InvalidRequest) as caught:
        await events_of(asked)
    assert caught.value.field == parameter
    assert caught.value.message


async def test_messages_of_parts_are_read() -> None:
    """Messages may be lists of parts, or have tool calls without content."""
    parts = [{"type": "text", "text": "one two"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    (event,) = await events_of(
        {"messages": [{"role": "user", "content": parts}, {"role": "assistant", "content": None, "tool_calls": []}]}
    )
    assert json.loads(event.raw_json)["usage"]["prompt_tokens"] == 2


TEXT = "one two three. four"


@pytest.mark.parametrize(
    ("wanted", "text", "reason"),
    [
        (Wanted(), TEXT, "stop"),
        (Wanted(max_tokens=2), "one two", "length"),
        (Wanted(max_tokens=4), TEXT, "stop"),
        (Wanted(max_tokens=9, max_completion_tokens=1), "one", "length"),
        (Wanted(stop="two"), "one ", "stop"),
        (Wanted(stop=["four", " thr", ""]), "one two", "stop"),
        (Wanted(stop=["nowhere"]), TEXT, "stop"),
        (Wanted(stop="four", max_tokens=2), "one two", "length"),
        (Wanted(stop="one"), "", "stop"),
    ],
)
def test_an_answer_ends_at_a_stop_string_or_after_so_many_tokens(wanted: Wanted, text: str, reason: str) -> None:
    """The first limit ends the answer and is its reason. The stop string is not part of the text."""
    said = worded(TEXT, wanted)
    assert ("".join(said.pieces), said.finish_reason) == (text, reason)


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (Wanted(max_tokens=0), "max_tokens"),
        (Wanted(max_completion_tokens=-1), "max_completion_tokens"),
        (Wanted(n=129), "n"),
        (Wanted(n=0), "n"),
    ],
)
def test_parameters_out_of_range_are_named(wanted: Wanted, name: str) -> None:
    """The problem with a parameter out of range names it."""
    problem = wanted.problem()
    assert problem is not None
    assert problem[0] == name
    assert name in problem[1]
    assert Wanted(max_tokens=1, n=2).problem() is None
