"""A model of an OpenAI-compatible server, tested with a recording server."""

import json
from collections.abc import AsyncIterator, Callable

import pytest
from causeway_testing.model_answers import DONE, FAULTS, STREAM, Answer, chunk, completion, sse, stream
from causeway_testing.model_server import ModelServer as Stub
from generator.domain import ChatMessage, Conversation, Event, EventKind, OpenAIRequest, Prompt
from generator.openai.model import OpenAIModel
from generator.openai.reply import Limits
from servicekit.errors import Unavailable, UpstreamRejected

MakeModel = Callable[..., OpenAIModel]
CONVERSATION = Conversation((ChatMessage("user", "Hi"),))
STREAMED = OpenAIRequest(b'{"model":"public","stream":true}')


async def events_of(model: OpenAIModel, prompt: Prompt) -> list[Event]:
    return [event async for event in model.generate(prompt)]


async def collect(events: AsyncIterator[Event], collected: list[Event]) -> None:
    async for event in events:
        collected.append(event)  # noqa: PERF401  # kept when the loop fails


async def test_a_streamed_conversation_becomes_events(stub: Stub, openai_model: MakeModel) -> None:
    """A conversation yields start, tokens, finish and usage in order. The request has the server's name of the
    model.
    """
    stub.script(stream(["Hel", "lo"]))
    events = await events_of(openai_model("server-name"), CONVERSATION)
    assert [(event.kind, event.text) for event in events] == [
        (EventKind.START, ""),
        (EventKind.TEXT, "Hel"),
        (EventKind.TEXT, "lo"),
        (EventKind.FINISH, "stop"),
        (EventKind.USAGE, ""),
    ]
    assert stub.requests[0].json()["model"] == "server-name"


async def test_only_the_model_name_in_a_request_changes(stub: Stub, openai_model: MakeModel) -> None:
    """The server gets the client's request byte for byte, except for the name of the model."""
    body = b'{ "messages":[{"role":"user","content":"caf\xc3\xa9"}],"model": "public","x_own":1.50 }'
    await events_of(openai_model("stub/v2"), OpenAIRequest(body))
    assert stub.requests[0].body == body.replace(b'"public"', b'"stub/v2"')
    same = body.replace(b'"public"', b'"stub"')
    await events_of(openai_model("stub"), OpenAIRequest(same))
    assert stub.requests[1].body == same


async def test_an_answer_in_one_piece_is_a_completion_byte_for_byte(stub: Stub, openai_model: MakeModel) -> None:
    """An unstreamed answer is one COMPLETION event with the body byte for byte."""
    body = b'{"id" : "x","choices":[ ],\n "vendor":1.50}'
    stub.script(Answer((body,)))
    assert await events_of(openai_model(), OpenAIRequest(b"{}")) == [Event(EventKind.COMPLETION, raw_json=body)]


async def test_a_conversation_can_be_answered_in_one_piece(stub: Stub, openai_model: MakeModel) -> None:
    """A conversation can get a COMPLETION event with the body. A streamed answer becomes the usual events."""
    body = b'{"id" : "x","choices":[ ],\n "vendor":null}'
    prompt = Conversation((ChatMessage("user", "Hi"),), in_one_piece=True)
    stub.script(Answer((body,)))
    assert await events_of(openai_model(), prompt) == [Event(EventKind.COMPLETION, raw_json=body)]
    stub.script(stream(["Hi"]))
    assert [event.text for event in await events_of(openai_model(), prompt)] == ["", "Hi", "stop", ""]


async def test_a_unary_conversation_has_the_events_of_a_stream(stub: Stub, openai_model: MakeModel) -> None:
    """A unary conversation requests no stream and yields the events of a stream, even for a streamed answer."""
    prompt = Conversation((ChatMessage("user", "Hi"),), unary=True)
    stub.script(completion("Hello there"), stream(["Hello", " there"]))
    kinds, texts = [], []
    for _ in range(2):
        events = await events_of(openai_model(), prompt)
        kinds.append(list(dict.fromkeys(event.kind for event in events)))
        texts.append("".join(event.text for event in events if event.kind is EventKind.TEXT))
        assert events[-1].usage is not None
    assert kinds == [[EventKind.START, EventKind.TEXT, EventKind.FINISH, EventKind.USAGE]] * 2
    assert texts == ["Hello there"] * 2
    assert "stream" not in json.loads(stub.requests[0].body)


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        (b"<html>", Unavailable),
        (b"null", Unavailable),
        (b"", Unavailable),
        (b'{"choices": "\xff"}', Unavailable),
        (b'{"error": {"code": 7}}', UpstreamRejected),
    ],
)
async def test_an_invalid_answer_in_one_piece_is_an_error(
    stub: Stub, openai_model: MakeModel, body: bytes, wrong: type[Exception]
) -> None:
    """A body that is not a JSON object, or an error with status 200, raises an error."""
    stub.script(Answer((body,)))
    with pytest.raises(wrong):
        await events_of(openai_model(), OpenAIRequest(b"{}"))


async def test_a_streamed_answer_is_chunks_byte_for_byte(stub: Stub, openai_model: MakeModel) -> None:
    """Each data payload is one event. Comments and the end marker are no events."""
    first, second = b'{"choices":[{"index":0,"delta":{"content":"a"}}], "v": 1.0}', b'{"error":{"message":"late"}}'
    stub.script(Answer((b": hi\n\ndata: " + first + b"\r\n\r\n", sse(second), DONE), content_type=STREAM))
    events = await events_of(openai_model(), STREAMED)
    assert events == [Event(EventKind.CHUNK, raw_json=payload) for payload in (first, second)]


async def test_the_form_of_the_answer_determines_the_events(stub: Stub, openai_model: MakeModel) -> None:
    """An answer in one piece is accepted, although the request asks for a stream."""
    stub.script(completion("whole"), completion("whole"))
    texts = [event.text for event in await events_of(openai_model(), CONVERSATION) if event.kind is EventKind.TEXT]
    assert texts == ["whole"]
    (event,) = await events_of(openai_model(), STREAMED)
    assert event.kind is EventKind.COMPLETION


@pytest.mark.parametrize("prompt", [CONVERSATION, STREAMED])
@pytest.mark.parametrize(
    "fault",
    [
        "fault-close-mid",
        "fault-reset-mid",
        "fault-ends-early",
        "fault-broken-json",
        "fault-half-line",
        "fault-huge-chunk",
    ],
)
async def test_the_events_before_a_failure_are_yielded(
    stub: Stub, openai_model: MakeModel, fault: str, prompt: Prompt
) -> None:
    """A broken stream yields its earlier events and then raises Unavailable."""
    stub.script(FAULTS[fault]())
    collected: list[Event] = []
    with pytest.raises(Unavailable, match="The model server"):
        await collect(openai_model().generate(prompt), collected)
    if prompt is STREAMED:
        assert [json.loads(event.raw_json)["choices"][0]["delta"]["content"] for event in collected] == [
            "Good so far"
        ]
    else:
        assert [event.text for event in collected] == ["", "Good so far"]


async def test_a_complete_stream_may_end_without_its_end_marker(stub: Stub, openai_model: MakeModel) -> None:
    """A stream without [DONE] is complete if each choice has a finish reason."""
    begun, other, ended = (
        sse(chunk({"content": "a"})),
        sse(chunk({"content": "b"}, index=1)),
        sse(chunk({}, "stop")),
    )
    stub.script(Answer((begun, ended), content_type=STREAM), Answer((begun, other, ended), content_type=STREAM))
    assert (await events_of(openai_model(), CONVERSATION))[-1].kind is EventKind.FINISH
    with pytest.raises(Unavailable, match="without a finish reason"):
        await events_of(openai_model(), CONVERSATION)


async def test_an_error_as_the_first_chunk_is_a_refusal(stub: Stub, openai_model: MakeModel) -> None:
    """A first chunk with an error raises UpstreamRejected with its status."""
    stub.script(Answer((sse(b'{"error":{"message":"too long","code":400}}'), DONE), content_type=STREAM))
    with pytest.raises(UpstreamRejected) as caught:
        await events_of(openai_model(), CONVERSATION)
    assert caught.value.status == 400


async def test_a_large_event_under_the_limit_passes(stub: Stub, openai_model: MakeModel) -> None:
    """A chunk of several megabytes below the limit arrives completely."""
    picture = "A" * 3_000_000
    stub.script(Answer((sse(chunk({"images": [picture]}, "stop")), DONE), content_type=STREAM))
    events = await events_of(openai_model(limits=Limits()), CONVERSATION)
    assert json.loads(events[1].raw_json) == {"images": [picture]}


async def test_the_window_is_the_configured_one_else_the_servers(stub: Stub, openai_model: MakeModel) -> None:
    """The configured window takes precedence over the server's. 0 means unknown."""
    stub.models = {"stub": {"max_model_len": 4096, "created": True}}
    assert await openai_model(window=100).context_window() == 100
    assert await openai_model().context_window() == 4096
    assert await openai_model("other").context_window() == 0
    assert await openai_model().ready()


async def test_the_time_of_creation_is_the_servers(stub: Stub, openai_model: MakeModel) -> None:
    """The time of creation is the server's. 0 means unknown."""
    stub.models = {"stub": {"created": 1_700_000_000}, "odd": {"created": "today"}, "huge": {"created": 10**30}}
    assert await openai_model().created() == 1_700_000_000
    assert await openai_model().context_window() == 0
    assert [await openai_model(name).created() for name in ("odd", "huge", "other")] == [0, 0, 0]


async def test_a_plain_prompt_is_sent_as_a_text_completion(stub: Stub, openai_model: MakeModel) -> None:
    """A plain prompt uses the path of text completions and yields the usual events."""
    payloads = [{"choices": [{"index": 0, "text": text, "finish_reason": None}]} for text in ("up", "on")]
    end = {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}
    stub.script(Answer((*map(sse, payloads), sse(end), DONE), content_type=STREAM))
    prompt = Conversation((ChatMessage("user", "Once"),), plain=True)
    events = await events_of(openai_model("m"), prompt)
    assert [event.text for event in events if event.kind is not EventKind.START] == ["up", "on", "length"]
    assert (stub.requests[0].path, stub.requests[0].json()["prompt"]) == ("/v1/completions", "Once")
