"""A model on a real Triton server, with the inputs of the vLLM backend and of TensorRT-LLM's ensemble."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from causeway_testing.servers import eventually, free_ports
from generator.domain import ChatMessage, Conversation, Event, EventKind, OpenAIRequest, Usage
from generator.triton.model import TritonModel
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from servicekit.errors import DeadlineExceeded, InvalidRequest, Unavailable

MakeModel = Callable[..., TritonModel]
BOTH_CONTRACTS = pytest.mark.parametrize("server_name", ["words", "ensemble"])


def prompt(text: str, **parameters: Any) -> Conversation:
    return Conversation((ChatMessage("user", text),), parameters_json=json.dumps(parameters).encode())


async def events_of(model: TritonModel, request: Conversation | OpenAIRequest) -> list[Event]:
    return [event async for event in model.generate(request)]


async def collect(events: AsyncIterator[Event], collected: list[Event]) -> None:
    async for event in events:
        collected.append(event)  # noqa: PERF401  # kept when the loop fails


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if event.kind is EventKind.TEXT)


def reason(events: list[Event]) -> str:
    (finish,) = [event.text for event in events if event.kind is EventKind.FINISH]
    return finish


@BOTH_CONTRACTS
async def test_an_answer_streams(triton_model: MakeModel, server_name: str) -> None:
    """An answer has a TEXT event for each token and then its reason. The model's configuration decides between both
    contracts.
    """
    events = await events_of(triton_model(server_name), prompt("one two three"))
    assert [event.text for event in events if event.kind is EventKind.TEXT] == ["one", " two", " three"]
    assert reason(events) == "stop"


@BOTH_CONTRACTS
async def test_tokens_are_limited(triton_model: MakeModel, server_name: str) -> None:
    """The request limits the tokens, or else the configuration. The reason is `length` even if the server sends
    no reason.
    """
    model = triton_model(server_name, answer_tokens=3)
    for parameters, text in (({"max_tokens": 2}, "a b"), ({"max_completion_tokens": 1}, "a"), ({}, "a b c")):
        events = await events_of(model, prompt("a b c d e", **parameters))
        assert (text_of(events), reason(events)) == (text, "length")


@pytest.mark.parametrize("server_name", ["words", "ensemble", "deaf"])
async def test_stop_sequences_end_the_answer(triton_model: MakeModel, server_name: str) -> None:
    """An answer ends before the first stop sequence, even if tokens cut it."""
    model = triton_model(server_name)
    for stop, text in ((" three", "one two"), (["ee fo", "never"], "one two thr"), ("two three fo", "one ")):
        events = await events_of(model, prompt("one two three four", stop=stop))
        assert (text_of(events), reason(events)) == (text, "stop")
    events = await events_of(model, prompt("one two three", stop=["three four"]))
    assert text_of(events) == "one two three"


async def test_counts_of_the_server_are_exact(triton_model: MakeModel) -> None:
    """The vLLM backend's counts are exact. If the server does not count, the counts are marked as estimates."""
    counted = await events_of(triton_model("words"), prompt("one two three", max_tokens=2))
    assert counted[-1].usage == Usage(3, 2, exact=True)
    ours = await events_of(triton_model("ensemble"), prompt("one two three", max_tokens=2))
    assert ours[-1].usage == Usage(4, 2, exact=False)


@BOTH_CONTRACTS
async def test_a_plain_prompt_uses_no_chat_template(triton_model: MakeModel, server_name: str) -> None:
    """A plain prompt uses no chat template, and accepts the parameters of a text completion."""
    model = triton_model(server_name, chat_template="<chat>{{ messages[0].content }}")
    parameters = json.dumps({"max_tokens": 2, "echo": False, "best_of": 1, "suffix": "", "logprobs": None}).encode()
    request = Conversation((ChatMessage("user", "one two three"),), parameters_json=parameters, plain=True)
    events = await events_of(model, request)
    assert (text_of(events), reason(events)) == ("one two", "length")
    assert events[-1].usage is not None
    assert (events[-1].usage.prompt_tokens, events[-1].usage.completion_tokens) == (3, 2)
    assert text_of(await events_of(model, prompt("one two three"))) == "<chat>one two three"


async def test_messages_go_through_the_chat_template(triton_model: MakeModel) -> None:
    """The model gets the messages as the template renders them."""
    template = "{% for message in messages %}<{{ message.role }}> {{ message.content }} {% endfor %}<assistant>"
    request = Conversation((ChatMessage("system", "Be kind."), ChatMessage("user", content_json=b'["Hi","there"]')))
    events = await events_of(triton_model(chat_template=template), request)
    assert text_of(events) == "<system> Be kind. <user> Hi\nthere <assistant>"


@pytest.mark.parametrize(
    ("parameters", "field"),
    [({"n": 2}, "n"), ({"top_p": 0.5}, "top_p"), ({"seed": -1}, "seed")],
    ids=["by the generator", "without a tensor", "out of the tensor's range"],
)
async def test_an_unsupported_parameter_is_refused_by_name(
    triton_model: MakeModel, parameters: dict[str, Any], field: str
) -> None:
    """A parameter that would change the answer and is not supported is refused by name."""
    with pytest.raises(InvalidRequest) as caught:
        await events_of(triton_model("ensemble"), prompt("Hi", **parameters))
    assert caught.value.field == field


async def test_parameters_without_an_effect_are_accepted(triton_model: MakeModel) -> None:
    """Parameters without an effect on the text are accepted."""
    parameters = {"user": "ann", "metadata": {"a": "b"}, "n": 1, "top_p": 1, "logprobs": False, "tools": None}
    assert text_of(await events_of(triton_model("ensemble"), prompt("Hi", **parameters, temperature=0.2))) == "Hi"


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (ChatMessage("user", content_json=b'[{"type":"image_url","image_url":{}}]'), "messages[0].content[0]"),
        (ChatMessage("assistant", extra_json=b'{"tool_calls":[{"id":"1"}]}'), "messages[0].tool_calls"),
        (ChatMessage("tool", "42", extra_json=b'{"tool_call_id":"1"}'), "messages[0].role"),
    ],
)
async def test_pictures_and_tools_are_refused(triton_model: MakeModel, message: ChatMessage, field: str) -> None:
    """Pictures and tools are refused with their path before the server is called."""
    with pytest.raises(InvalidRequest) as caught:
        await events_of(triton_model(address="127.0.0.1:1"), Conversation((message,)))
    assert caught.value.field == field


async def test_a_request_gets_a_completion_of_the_openai_api(triton_model: MakeModel) -> None:
    """A request of the OpenAI API gets a valid completion."""
    body = {"model": "public", "messages": [{"role": "user", "content": "one two three"}], "max_tokens": 2}
    (event,) = await events_of(triton_model(), OpenAIRequest(json.dumps(body).encode()))
    completion = ChatCompletion.model_validate_json(event.raw_json, strict=True)
    assert completion.choices[0].message.content == "one two"
    assert completion.choices[0].finish_reason == "length"
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (3, 2)


async def test_a_streamed_request_gets_chunks_of_the_openai_api(triton_model: MakeModel) -> None:
    """A streamed request gets the role, the tokens, the reason and the usage with one id. Another answer has
    another id.
    """
    body = {
        "messages": [{"role": "user", "content": "one two"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    model, request = triton_model(), OpenAIRequest(json.dumps(body).encode())
    chunks = [
        ChatCompletionChunk.model_validate_json(event.raw_json, strict=True)
        for event in await events_of(model, request)
    ]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "one two"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    (identity,) = {chunk.id for chunk in chunks}
    assert json.loads((await events_of(model, request))[0].raw_json)["id"] != identity


async def test_closing_the_answer_cancels_the_request(triton_model: MakeModel, triton: Any) -> None:
    """Closing the answer cancels the request on the server."""
    mark = uuid.uuid4().hex
    answer = triton_model("slow").generate(endless(mark))
    while (event := await anext(answer)).text != " word":
        assert event.kind is not EventKind.FINISH
    await answer.aclose()
    await eventually(lambda: bool(ends(triton, mark)), what="the end of the request")
    assert [end["event"] for end in ends(triton, mark)] == ["cancelled"]


async def test_cancelling_the_reader_cancels_the_request(triton_model: MakeModel, triton: Any) -> None:
    """A cancelled task cancels the request on the server."""
    mark = uuid.uuid4().hex
    reading = asyncio.create_task(events_of(triton_model("slow"), endless(mark)))
    await eventually(lambda: bool(triton.journal(mark)), what="the beginning of the request")
    await asyncio.sleep(0.1)
    reading.cancel()
    await asyncio.wait({reading})
    await eventually(lambda: bool(ends(triton, mark)), what="the end of the request")
    assert [end["event"] for end in ends(triton, mark)] == ["cancelled"]


async def test_an_unsupported_stop_sequence_stops_the_model(triton_model: MakeModel, triton: Any) -> None:
    """A stop sequence that the server does not support ends the answer and cancels the request."""
    mark = uuid.uuid4().hex
    request = endless(f"{mark} a b c d e", stop="c d")
    assert text_of(await events_of(triton_model("deaf"), request)) == f"{mark} a b "
    await eventually(lambda: bool(ends(triton, mark)), what="the end of the request")
    assert [end["event"] for end in ends(triton, mark)] == ["cancelled"]


def endless(text: str, **parameters: Any) -> Conversation:
    """Return a request whose answer takes 200 seconds at 50 words a second."""
    return prompt(f"{text} " + "word " * 10_000, max_tokens=20_000, **parameters)


def ends(triton: Any, mark: str) -> list[dict[str, Any]]:
    return [entry for entry in triton.journal(mark) if entry["event"] != "began"]


async def test_a_model_that_is_not_loaded_is_unavailable(triton_model: MakeModel) -> None:
    """An unknown or unloaded model raises Unavailable, is not ready, and has no known window."""
    for name in ("unknown", "unloaded"):
        model = triton_model(name)
        with pytest.raises(Unavailable, match=f"not loaded the model '{name}'"):
            await events_of(model, prompt("Hi"))
        assert not await model.ready()
        assert await model.context_window() == 0


async def test_a_server_that_does_not_run_is_unavailable(triton_model: MakeModel) -> None:
    """If the server does not run, the error allows a retry, and the model is not ready."""
    model = triton_model(address=f"127.0.0.1:{free_ports(1)[0]}", connect=1.0)
    with pytest.raises((Unavailable, DeadlineExceeded)):
        await events_of(model, prompt("Hi"))
    assert not await model.ready()


async def test_the_events_before_a_failure_are_yielded(triton_model: MakeModel) -> None:
    """A model that fails within an answer yields the earlier words and then raises Unavailable."""
    collected: list[Event] = []
    with pytest.raises(Unavailable, match="before its answer was complete"):
        await collect(triton_model("broken").generate(prompt("one two three")), collected)
    assert text_of(collected) in ("one", "one two")


async def test_the_waits_for_tokens_have_time_outs(triton_model: MakeModel) -> None:
    """The waits for the first and for the next token have time-outs. The error keeps its cause."""
    with pytest.raises(DeadlineExceeded, match="did not begin to answer within") as caught:
        await events_of(triton_model("slow", first_byte=0.001), prompt("Hi"))
    assert isinstance(caught.value.__cause__, TimeoutError)
    collected: list[Event] = []
    with pytest.raises(DeadlineExceeded, match="sent nothing further within"):
        await collect(triton_model("slow", idle=0.001).generate(endless("a")), collected)
    assert text_of(collected).startswith("a")


async def test_a_refusal_has_the_models_message(triton_model: MakeModel) -> None:
    """An invalid argument of the model raises InvalidRequest with the model's message."""
    with pytest.raises(InvalidRequest, match="max_tokens must be at least 1"):
        await events_of(triton_model(answer_tokens=0), prompt("Hi"))


async def test_the_window_is_the_configured_one_else_the_models(triton_model: MakeModel) -> None:
    """The configured window takes precedence over the model's. 0 means unknown."""
    assert await triton_model(window=100).context_window() == 100
    assert await triton_model().context_window() == 8192
    assert await triton_model("ensemble").context_window() == 0
    assert await triton_model().ready()


async def test_concurrent_requests_get_their_own_answers(triton_model: MakeModel) -> None:
    """Concurrent requests get their own answers."""
    model = triton_model()
    texts = [f"answer number {number}" for number in range(50)]
    answers = await asyncio.gather(*(events_of(model, prompt(text)) for text in texts))
    assert [text_of(events) for events in answers] == texts
