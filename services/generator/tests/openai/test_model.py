"""A model of an OpenAI-compatible server, on a recording one."""

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


async def collect(events: AsyncIterator[Event], got: list[Event]) -> None:
    async for event in events:
        got.append(event)  # noqa: PERF401  # kept when the loop fails


async def test_a_streamed_conversation_becomes_events(stub: Stub, openai_model: MakeModel) -> None:
    """Start, each token, finish and usage, in order; the server is asked under its own name for the model."""
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


async def test_a_request_goes_out_as_it_came_but_for_the_name(stub: Stub, openai_model: MakeModel) -> None:
    """Every byte besides the model's name is the client's."""
    body = b'{ "messages":[{"role":"user","content":"caf\xc3\xa9"}],"model": "public","x_own":1.50 }'
    await events_of(openai_model("stub/v2"), OpenAIRequest(body))
    assert stub.requests[0].body == body.replace(b'"public"', b'"stub/v2"')
    same = body.replace(b'"public"', b'"stub"')
    await events_of(openai_model("stub"), OpenAIRequest(same))
    assert stub.requests[1].body == same


async def test_an_answer_in_one_piece_is_a_completion_byte_for_byte(stub: Stub, openai_model: MakeModel) -> None:
    """Whatever its JSON holds."""
    body = b'{"id" : "x","choices":[ ],\n "vendor":1.50}'
    stub.script(Answer((body,)))
    assert await events_of(openai_model(), OpenAIRequest(b"{}")) == [Event(EventKind.COMPLETION, raw_json=body)]


async def test_a_conversation_that_is_answered_in_one_piece(stub: Stub, openai_model: MakeModel) -> None:
    """It is one completion, byte for byte; a server that streams all the same is read as any stream."""
    body = b'{"id" : "x","choices":[ ],\n "vendor":null}'
    prompt = Conversation((ChatMessage("user", "Hi"),), in_one_piece=True)
    stub.script(Answer((body,)))
    assert await events_of(openai_model(), prompt) == [Event(EventKind.COMPLETION, raw_json=body)]
    stub.script(stream(["Hi"]))
    assert [event.text for event in await events_of(openai_model(), prompt)] == ["", "Hi", "stop", ""]


async def test_a_unary_conversation_has_the_events_of_a_stream(stub: Stub, openai_model: MakeModel) -> None:
    """One of each kind, from a server that is asked for no stream; also from one that streams all the same."""
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
async def test_an_answer_in_one_piece_that_is_none(
    stub: Stub, openai_model: MakeModel, body: bytes, wrong: type[Exception]
) -> None:
    """What is no JSON object, or an error in spite of its status, is no completion."""
    stub.script(Answer((body,)))
    with pytest.raises(wrong):
        await events_of(openai_model(), OpenAIRequest(b"{}"))


async def test_a_streamed_answer_is_chunks_byte_for_byte(stub: Stub, openai_model: MakeModel) -> None:
    """Each data payload is one event; comments and the end mark are not."""
    first, second = b'{"choices":[{"index":0,"delta":{"content":"a"}}], "v": 1.0}', b'{"error":{"message":"late"}}'
    stub.script(Answer((b": hi\n\ndata: " + first + b"\r\n\r\n", sse(second), DONE), content_type=STREAM))
    events = await events_of(openai_model(), STREAMED)
    assert events == [Event(EventKind.CHUNK, raw_json=payload) for payload in (first, second)]


async def test_the_answers_form_decides_not_the_requests(stub: Stub, openai_model: MakeModel) -> None:
    """A server that does not stream is understood, for a conversation and for a request."""
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
async def test_what_was_good_comes_before_the_failure(
    stub: Stub, openai_model: MakeModel, fault: str, prompt: Prompt
) -> None:
    """A stream that goes wrong gives its good events first, then says that the server failed."""
    stub.script(FAULTS[fault]())
    got: list[Event] = []
    with pytest.raises(Unavailable, match="The model server"):
        await collect(openai_model().generate(prompt), got)
    if prompt is STREAMED:
        assert [json.loads(event.raw_json)["choices"][0]["delta"]["content"] for event in got] == ["Good so far"]
    else:
        assert [event.text for event in got] == ["", "Good so far"]


async def test_a_stream_may_end_without_its_mark_when_it_is_complete(stub: Stub, openai_model: MakeModel) -> None:
    """Some servers send no [DONE]; the finish reason is enough, for every choice that began."""
    begun, other, ended = (
        sse(chunk({"content": "a"})),
        sse(chunk({"content": "b"}, index=1)),
        sse(chunk({}, "stop")),
    )
    stub.script(Answer((begun, ended), content_type=STREAM), Answer((begun, other, ended), content_type=STREAM))
    assert (await events_of(openai_model(), CONVERSATION))[-1].kind is EventKind.FINISH
    with pytest.raises(Unavailable, match="ended its answer early"):
        await events_of(openai_model(), CONVERSATION)


async def test_an_error_as_the_first_chunk_is_a_refusal(stub: Stub, openai_model: MakeModel) -> None:
    """Servers that begin with 200 and then refuse are heard."""
    stub.script(Answer((sse(b'{"error":{"message":"too long","code":400}}'), DONE), content_type=STREAM))
    with pytest.raises(UpstreamRejected) as caught:
        await events_of(openai_model(), CONVERSATION)
    assert caught.value.status == 400


async def test_a_large_event_under_the_limit_passes(stub: Stub, openai_model: MakeModel) -> None:
    """A picture of megabytes in one chunk crosses whole."""
    picture = "A" * 3_000_000
    stub.script(Answer((sse(chunk({"images": [picture]}, "stop")), DONE), content_type=STREAM))
    events = await events_of(openai_model(limits=Limits()), CONVERSATION)
    assert json.loads(events[1].raw_json) == {"images": [picture]}


async def test_the_window_is_the_configured_one_else_the_servers(stub: Stub, openai_model: MakeModel) -> None:
    """Configuration wins; 0 says that nobody knows."""
    stub.models = {"stub": {"max_model_len": 4096, "created": True}}
    assert await openai_model(window=100).context_window() == 100
    assert await openai_model().context_window() == 4096
    assert await openai_model("other").context_window() == 0
    assert await openai_model().ready()


async def test_a_model_was_created_when_its_server_says(stub: Stub, openai_model: MakeModel) -> None:
    """Also where the list tells no window; 0 says that it is not known."""
    stub.models = {"stub": {"created": 1_700_000_000}, "odd": {"created": "today"}, "huge": {"created": 10**30}}
    assert await openai_model().created() == 1_700_000_000
    assert await openai_model().context_window() == 0
    assert [await openai_model(name).created() for name in ("odd", "huge", "other")] == [0, 0, 0]


async def test_a_text_to_go_on_with_is_asked_for_as_a_text_completion(stub: Stub, openai_model: MakeModel) -> None:
    """At its own path; the events are those of any answer."""
    payloads = [{"choices": [{"index": 0, "text": text, "finish_reason": None}]} for text in ("up", "on")]
    end = {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}
    stub.script(Answer((*map(sse, payloads), sse(end), DONE), content_type=STREAM))
    prompt = Conversation((ChatMessage("user", "Once"),), plain=True)
    events = await events_of(openai_model("m"), prompt)
    assert [event.text for event in events if event.kind is not EventKind.START] == ["up", "on", "length"]
    assert (stub.requests[0].path, stub.requests[0].json()["prompt"]) == ("/v1/completions", "Once")
