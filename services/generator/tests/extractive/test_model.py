"""The extractive model behind the port of models."""

import json
from typing import Any

import pytest
from generator.domain import ChatMessage, Conversation, Event, EventKind, OpenAIRequest, Source
from generator.extractive.answer import NO_SOURCES
from generator.extractive.model import ExtractiveModel, Parameters, limit_answer
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from servicekit.errors import InvalidRequest

SOURCE = Source("freight.md", "A pallet may weigh up to 900 kg.", 1.0)
ANSWER = "A pallet may weigh up to 900 kg. [freight.md]"
HI = {"messages": [{"role": "user", "content": "Hi"}]}


def prompt(question: str = "How heavy may a pallet be?", parameters: bytes = b"{}") -> Conversation:
    return Conversation((ChatMessage("user", "Question and sources"),), (SOURCE,), parameters, question)


async def events_of(prompt_or_request: Conversation | dict[str, Any]) -> list[Event]:
    model = ExtractiveModel("mine", clock=lambda: 1_700_000_000.9)
    sent = (
        OpenAIRequest(json.dumps(prompt_or_request).encode())
        if isinstance(prompt_or_request, dict)
        else prompt_or_request
    )
    return [event async for event in model.generate(sent)]


def answer(events: list[Event], choice: int = 0) -> str:
    return "".join(event.text for event in events if event.kind is EventKind.TEXT and event.choice == choice)


async def test_the_model_yields_one_event_for_each_word() -> None:
    """The model yields a TEXT event for each word, the end, and the counted tokens."""
    events = await events_of(prompt())
    assert answer(events) == ANSWER
    assert events[1].text == "A"
    usage = events[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.exact) == (3, 9, True)


async def test_without_a_question_the_last_user_message_is_the_question() -> None:
    """Without a question, the last user message is the question."""
    prompt_or_request = Conversation(
        (ChatMessage("user", "How heavy may a pallet be?"), ChatMessage("assistant", "Light.")), (SOURCE,)
    )
    assert answer(await events_of(prompt_or_request)) == ANSWER


async def test_parameters_are_respected() -> None:
    """The model respects the limit of tokens, stop strings and the number of choices. Each choice has the same text
    and its own end.
    """
    events = await events_of(prompt(parameters=b'{"max_tokens":3,"n":2,"temperature":0.5,"x":{}}'))
    assert [answer(events, choice) for choice in (0, 1)] == ["A pallet may"] * 2
    ends = [(event.choice, event.text) for event in events if event.kind is EventKind.FINISH]
    assert ends == [(0, "length"), (1, "length")]
    assert events[-1].usage is not None
    assert events[-1].usage.completion_tokens == 6
    assert answer(await events_of(prompt(parameters=b'{"stop":[" up"]}'))) == "A pallet may weigh"


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
    """A request gets a valid completion with the number of tokens. The text says that the model has no sources."""
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
    ("prompt_or_request", "parameter"),
    [
        ({"messages": [{"content": "Hi"}]}, "messages[0].role"),
        ({**HI, "max_tokens": 0}, "max_tokens"),
    ],
)
async def test_a_bad_request_is_refused_by_its_parameter(prompt_or_request: dict[str, Any], parameter: str) -> None:
    """The error has the path of the wrong parameter."""
    with pytest.raises(InvalidRequest) as caught:
        await events_of(prompt_or_request)
    assert caught.value.field == parameter
    assert caught.value.message


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function", "function": {"name": "find"}}),
        ("tool_choice", {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}),
        ("tool_choice", 5),
        ("function_call", {"name": "find"}),
    ],
)
async def test_a_call_that_the_model_cannot_make_is_refused(member: str, value: Any) -> None:
    """A request that requires a tool call is refused, with and without sources."""
    with pytest.raises(InvalidRequest, match="calls no tools") as refused:
        await events_of(HI | {member: value})
    assert refused.value.field == member
    with pytest.raises(InvalidRequest, match="calls no tools"):
        await events_of(prompt(parameters=json.dumps({member: value}).encode()))


@pytest.mark.parametrize(
    "choice", ["auto", "none", None, {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}]
)
async def test_optional_tools_are_not_called(choice: Any) -> None:
    """If the choice of tools allows a text, the model answers with a text."""
    [completion] = await events_of(HI | {"tool_choice": choice, "tools": [{"type": "function"}]})
    assert NO_SOURCES in completion.raw_json.decode()


async def test_an_unknown_role_is_refused() -> None:
    """Messages may have the roles of the OpenAI API; other roles are refused."""
    for role in ("developer", "system", "user", "assistant", "tool", "function"):
        assert await events_of({"messages": [{"role": role, "content": "Hi"}]})
    with pytest.raises(InvalidRequest, match="must be one of developer, system") as refused:
        await events_of({"messages": [*HI["messages"], {"role": "wizard", "content": "Hi"}]})
    assert refused.value.field == "messages[1].role"


async def test_messages_of_parts_are_read() -> None:
    """Messages may be lists of parts, or have tool calls without content."""
    parts = [{"type": "text", "text": "one two"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    (event,) = await events_of(
        {"messages": [{"role": "user", "content": parts}, {"role": "assistant", "content": None, "tool_calls": []}]}
    )
    assert json.loads(event.raw_json)["usage"]["prompt_tokens"] == 2


TEXT = "one two three. four"


@pytest.mark.parametrize(
    ("parameters", "text", "reason"),
    [
        (Parameters(), TEXT, "stop"),
        (Parameters(max_tokens=2), "one two", "length"),
        (Parameters(max_tokens=4), TEXT, "stop"),
        (Parameters(max_tokens=9, max_completion_tokens=1), "one", "length"),
        (Parameters(max_tokens=1, max_completion_tokens=2), "one two", "length"),
        (Parameters(stop="two"), "one ", "stop"),
        (Parameters(stop=["four", " thr"]), "one two", "stop"),
        (Parameters(stop=["nowhere"]), TEXT, "stop"),
        (Parameters(stop="four", max_tokens=2), "one two", "length"),
        (Parameters(stop="one"), "", "stop"),
    ],
)
def test_an_answer_ends_at_a_stop_string_or_at_the_token_limit(
    parameters: Parameters, text: str, reason: str
) -> None:
    """The first limit ends the answer and is its reason. The stop string is not part of the text."""
    answer = limit_answer(TEXT, parameters)
    assert ("".join(answer.pieces), answer.finish_reason) == (text, reason)


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        (Parameters(max_tokens=0), "max_tokens"),
        (Parameters(max_completion_tokens=-1), "max_completion_tokens"),
        (Parameters(n=129), "n"),
        (Parameters(n=0), "n"),
        (Parameters(stop=""), "stop"),
        (Parameters(stop=["a", ""]), "stop[1]"),
    ],
)
def test_parameters_out_of_range_are_refused_by_name(parameters: Parameters, name: str) -> None:
    """The error names the parameter that is out of range."""
    with pytest.raises(InvalidRequest) as caught:
        parameters.check()
    assert caught.value.field == name
