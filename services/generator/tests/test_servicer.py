"""The service over gRPC: messages, refusals, and clients that leave or stop reading."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from causeway.generator.v1 import generator_pb2 as pb
from causeway_testing.generator import FakeModel
from causeway_testing.model_answers import DONE, FAULTS, STREAM, Answer, Fault, chunk, sse, stream
from causeway_testing.model_server import ModelServer as Stub
from causeway_testing.servers import eventually
from generator.domain import Conversation, Event, EventKind, OpenAIRequest, Source, Usage
from generator.openai.model import OpenAIModel
from generator.openai.reply import Limits
from servicekit import rpc
from servicekit.deadline import Deadline
from servicekit.errors import (
    CausewayError,
    DeadlineExceeded,
    Internal,
    InvalidRequest,
    NotFound,
    Unauthenticated,
    Unavailable,
    UpstreamRejected,
)
from servicekit.principal import LOCAL

Serve = Callable[..., contextlib.AbstractAsyncContextManager[Any]]
Make = Callable[..., pb.GenerateRequest]
MakeModel = Callable[..., OpenAIModel]


async def batches_of(generator: Any, request: pb.GenerateRequest, seconds: float = 10) -> list[pb.GenerateResponse]:
    return [response async for response in rpc.server_stream(generator.Generate, request, Deadline.after(seconds))]


async def events_of(generator: Any, request: pb.GenerateRequest, seconds: float = 10) -> list[pb.GenerateEvent]:
    return [event for batch in await batches_of(generator, request, seconds) for event in batch.events]


def test_kinds_are_numbered_as_in_the_contract() -> None:
    """The domain's kinds of events have the names and numbers of the contract."""
    ours = {f"EVENT_KIND_{kind.name}": kind.value for kind in EventKind}
    assert ours | {"EVENT_KIND_UNSPECIFIED": 0} == dict(pb.EventKind.items())


async def test_the_client_gets_every_member_of_an_event(serve: Serve, conversation: Make) -> None:
    """The client gets every member of the model's events."""
    script = [
        Event(EventKind.START, raw_json=b'{"id":"a"}'),
        Event(EventKind.TEXT, 3, "wörd", b'{"logprobs":[]}'),
        Event(EventKind.DELTA, 1, raw_json=b'{"tool_calls":[]}'),
        Event(EventKind.FINISH, 3, "stop"),
        Event(EventKind.USAGE, usage=Usage(7, 9, exact=True), raw_json=b"{}"),
    ]
    async with serve(FakeModel(script=script)) as generator:
        events = await events_of(generator, conversation())
    assert [(event.choice, int(event.kind), event.text, event.raw_json) for event in events] == [
        (event.choice, event.kind.value, event.text, event.raw_json) for event in script
    ]
    assert [event.HasField("usage") for event in events] == [False] * 4 + [True]
    assert (events[4].usage.prompt_tokens, events[4].usage.completion_tokens, events[4].usage.exact) == (7, 9, True)


async def test_a_conversation_reaches_the_model(serve: Serve) -> None:
    """The model gets the messages, sources, parameters and question of the request."""
    model = FakeModel()
    request = pb.GenerateRequest(
        principal=LOCAL.to_proto(),
        conversation=pb.Conversation(
            messages=[
                pb.ChatMessage(role="user", content_json=b"[]", extra_json=b'{"name":"a"}'),
                pb.ChatMessage(role="assistant", text="x"),
            ],
            sources=[
                pb.Source(name="a.pdf", text="t", score=0.5),
                pb.Source(name="b.pdf", text="u", score=0.4, dense_score=0.0),
            ],
            parameters_json=b'{"temperature":0}',
            question="q",
        ),
    )
    async with serve(model) as generator:
        await events_of(generator, request)
    (prompt,) = model.prompts
    assert isinstance(prompt, Conversation)
    assert [message.role for message in prompt.messages] == ["user", "assistant"]
    assert (prompt.messages[0].content_json, prompt.messages[0].extra_json) == (b"[]", b'{"name":"a"}')
    assert prompt.sources == (Source("a.pdf", "t", 0.5), Source("b.pdf", "u", 0.4, 0.0))
    assert (prompt.parameters_json, prompt.question) == (b'{"temperature":0}', "q")


async def test_a_request_of_the_openai_api_reaches_the_model(serve: Serve, openai_request: Make) -> None:
    """The model gets a request of the OpenAI API byte for byte."""
    model = FakeModel()
    async with serve(model) as generator:
        await events_of(generator, openai_request(b'{ "x":1 }'))
    assert model.prompts == [OpenAIRequest(b'{ "x":1 }')]


async def test_the_named_model_answers(serve: Serve, conversation: Make) -> None:
    """The named model answers, or the first one without a name. An unknown name causes NotFound with its field."""
    one, two = FakeModel("one"), FakeModel("two")
    async with serve(one, two) as generator:
        await events_of(generator, conversation(model="two"))
        await events_of(generator, conversation())
        with pytest.raises(NotFound, match="'three'") as caught:
            await events_of(generator, conversation(model="three"))
    assert (len(one.prompts), len(two.prompts)) == (1, 1)
    assert (caught.value.field, caught.value.resource) == ("model", "three")


def user(**members: Any) -> dict[str, Any]:
    return {"conversation": pb.Conversation(messages=[pb.ChatMessage(role="user", text="a")], **members)}


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({}, "prompt"),
        ({"conversation": pb.Conversation()}, "conversation.messages"),
        (
            {"conversation": pb.Conversation(messages=[pb.ChatMessage(text="a")])},
            "conversation.messages[0].role",
        ),
        (
            {"conversation": pb.Conversation(messages=[pb.ChatMessage(role="user", content_json=b'"a"')])},
            "conversation.messages[0].content_json",
        ),
        (
            {"conversation": pb.Conversation(messages=[pb.ChatMessage(role="user", text="a", content_json=b"[]")])},
            "conversation.messages[0].text",
        ),
        (
            {"conversation": pb.Conversation(messages=[pb.ChatMessage(role="user", extra_json=b"[")])},
            "conversation.messages[0].extra_json",
        ),
        (
            {"conversation": pb.Conversation(messages=[pb.ChatMessage(role="user", extra_json=b'{"x":1e400}')])},
            "conversation.messages[0].extra_json",
        ),
        (
            {"conversation": pb.Conversation(messages=[pb.ChatMessage(role="user", content_json=b"[1e400]")])},
            "conversation.messages[0].content_json",
        ),
        (user(parameters_json=b"[1]"), "conversation.parameters_json"),
        (user(parameters_json=b'{"stream":true}'), "conversation.parameters_json.stream"),
        ({"openai_request_json": b"[]"}, "openai_request_json"),
        ({"openai_request_json": b'{"a":'}, "openai_request_json"),
        ({"openai_request_json": b'{"a":"\xff"}'}, "openai_request_json"),
        ({"openai_request_json": b'{"a":' + b"[" * 50_000}, "openai_request_json"),
        (user(parameters_json=b'{"stop":"\xff"}'), "conversation.parameters_json"),
    ],
)
async def test_a_bad_prompt_is_refused_before_a_model_is_called(
    serve: Serve, members: dict[str, Any], field: str
) -> None:
    """A bad prompt is refused with its field before the model is called, without the text of Python's codec."""
    model = FakeModel()
    async with serve(model) as generator:
        with pytest.raises(InvalidRequest) as caught:
            await events_of(generator, pb.GenerateRequest(principal=LOCAL.to_proto(), **members))
    assert caught.value.field == field
    assert "codec" not in caught.value.message
    assert model.prompts == []


async def test_a_call_without_a_principal_is_refused(serve: Serve) -> None:
    """A call without a principal is refused."""
    async with serve(FakeModel()) as generator:
        with pytest.raises(Unauthenticated):
            await events_of(generator, pb.GenerateRequest(openai_request_json=b"{}"))
        for method, request in (
            (generator.CountTokens, pb.CountTokensRequest()),
            (generator.ListModels, pb.ListModelsRequest()),
        ):
            with pytest.raises(Unauthenticated):
                await rpc.unary(method, request, Deadline.after(5))


async def test_tokens_are_counted_text_by_text(serve: Serve) -> None:
    """The answer has the count of each text and of the conversation, the window, and whether they are exact."""
    async with serve(FakeModel(window=777)) as generator:
        request = pb.CountTokensRequest(
            principal=LOCAL.to_proto(),
            texts=["one", "", "one two three"],
            messages=[pb.ChatMessage(role="user", text="one two")],
        )
        answer = await rpc.unary(generator.CountTokens, request, Deadline.after(5))
        assert (list(answer.counts), answer.messages_count) == ([1, 0, 3], 3)
        assert not answer.only_quotes
        assert (answer.context_window, answer.exact, answer.counting) == (777, True, "fake")
        request = pb.CountTokensRequest(principal=LOCAL.to_proto(), model="unknown", texts=["a"])
        with pytest.raises(NotFound):
            await rpc.unary(generator.CountTokens, request, Deadline.after(5))
        request = pb.CountTokensRequest(principal=LOCAL.to_proto(), messages=[pb.ChatMessage(text="a")])
        with pytest.raises(InvalidRequest):
            await rpc.unary(generator.CountTokens, request, Deadline.after(5))


async def test_models_are_listed_with_the_default_first(serve: Serve) -> None:
    """The list has the window, the owner, the time of creation and the readiness of each model."""
    async with serve(FakeModel("z", window=5, created=7), FakeModel("a", is_ready=False)) as generator:
        request = pb.ListModelsRequest(principal=LOCAL.to_proto())
        answer = await rpc.unary(generator.ListModels, request, Deadline.after(5))
    assert [
        (model.name, model.context_window, model.owned_by, model.created, model.ready) for model in answer.models
    ] == [
        ("z", 5, "tests", 7, True),
        ("a", 1000, "tests", 0, False),
    ]


async def test_events_that_arrive_together_are_one_message(serve: Serve, conversation: Make) -> None:
    """Events that arrive together are one message. A pause ends the message."""
    text = Event(EventKind.TEXT, text="a")
    async with serve(FakeModel(script=[text, text, text, 0.1, text])) as generator:
        assert [len(batch.events) for batch in await batches_of(generator, conversation())] == [3, 1]


async def test_messages_have_a_limited_size(serve: Serve, conversation: Make) -> None:
    """Messages are limited in number of events and bytes, and no event is lost."""
    texts = [*(f"word {number}" for number in range(600)), *["x" * 30_000] * 6]
    script = [Event(EventKind.TEXT, text=text) for text in texts]
    async with serve(FakeModel(script=script)) as generator:
        batches = await batches_of(generator, conversation())
    assert max(len(batch.events) for batch in batches) == 256
    assert max(batch.ByteSize() for batch in batches) <= 64 * 1024
    assert [event.text for batch in batches for event in batch.events] == texts


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("fault-hang-before", DeadlineExceeded),
        ("fault-close-before", Unavailable),
        ("fault-hang-mid", DeadlineExceeded),
        ("fault-close-mid", Unavailable),
        ("fault-reset-mid", Unavailable),
        ("fault-ends-early", Unavailable),
        ("fault-broken-json", Unavailable),
        ("fault-no-utf8", Unavailable),
        ("fault-deep", Unavailable),
        ("fault-half-line", Unavailable),
        ("fault-huge-chunk", Unavailable),
        ("fault-huge-body", Unavailable),
        ("fault-400", UpstreamRejected),
        ("fault-429", UpstreamRejected),
        ("fault-500", UpstreamRejected),
        ("fault-503", UpstreamRejected),
    ],
)
async def test_a_fault_of_the_model_server_ends_the_call_and_its_connection(
    serve: Serve, stub: Stub, openai_model: MakeModel, conversation: Make, fault: str, error: type[CausewayError]
) -> None:
    """A fault of the model server ends the call in time with a message for the client, and no connection stays
    busy.
    """
    seconds = 0.5 if "hang" in fault else 20  # the other faults appear at once, even on a busy machine
    limits = Limits(connect=20, first_byte=seconds, idle=seconds, max_bytes=1024 * 1024)
    async with serve(openai_model(fault, limits=limits)) as generator:
        with pytest.raises(error) as caught:
            await events_of(generator, conversation(), seconds=30)
        assert "model server" in caught.value.message
        if isinstance(caught.value, UpstreamRejected):
            assert (caught.value.status, caught.value.retry_after) == {
                "fault-400": (400, None),
                "fault-429": (429, 7),
                "fault-500": (500, None),
                "fault-503": (503, 2),
            }[fault]
            assert "message" in json.loads(caught.value.body)["error"]
    (request,) = stub.requests
    await eventually(lambda: request.finished_at is not None or request.closed_at is not None)


async def test_an_unexpected_exception_does_not_reach_the_client(serve: Serve, conversation: Make) -> None:
    """An unexpected exception becomes Internal without the exception's text."""
    async with serve(FakeModel(script=[Event(EventKind.START), ValueError("secret path")])) as generator:
        with pytest.raises(Internal) as caught:
            await events_of(generator, conversation())
    assert "secret" not in caught.value.message


@contextlib.asynccontextmanager
async def cancelled_at_the_end(call: Any, stub: Stub) -> AsyncIterator[None]:
    """Cancel the call when the block ends, and check that the model server sees it."""
    yield
    call.cancel()
    await eventually(lambda: stub.requests[0].closed_at is not None)


@pytest.mark.parametrize("streamed", [True, False])
async def test_a_client_that_leaves_before_the_first_token_closes_the_connection(
    serve: Serve, stub: Stub, openai_model: MakeModel, openai_request: Make, streamed: bool
) -> None:
    """A client that leaves before the first token closes the model server's connection, streamed or not."""
    stub.script(FAULTS["fault-hang-before"]())
    async with serve(openai_model(limits=Limits())) as generator:
        call = generator.Generate(openai_request(json.dumps({"stream": streamed}).encode()))
        async with cancelled_at_the_end(call, stub):
            await eventually(lambda: len(stub.requests) == 1)
            await asyncio.sleep(0.02)


async def test_a_client_that_leaves_after_the_first_token_closes_the_connection(
    serve: Serve, stub: Stub, openai_model: MakeModel, conversation: Make
) -> None:
    """A client that leaves after the first token closes the connection, even while the model is silent."""
    for answer in (stream(["a"] * 1000, pace=0.005), FAULTS["fault-hang-mid"]()):
        stub.requests.clear()
        stub.script(answer)
        async with serve(openai_model(limits=Limits())) as generator:
            call = generator.Generate(conversation())
            async with cancelled_at_the_end(call, stub):
                assert (await call.read()).events


async def test_a_client_that_leaves_within_a_body_closes_the_connection(
    serve: Serve, stub: Stub, openai_model: MakeModel, openai_request: Make
) -> None:
    """A client that leaves in the middle of an unstreamed answer closes the connection."""
    stub.script(Answer((b'{"choices":', Fault.HANG)))
    async with serve(openai_model(limits=Limits())) as generator:
        call = generator.Generate(openai_request(b"{}"))
        async with cancelled_at_the_end(call, stub):
            await eventually(lambda: bool(stub.requests) and stub.requests[0].written > 0)
            await asyncio.sleep(0.02)


async def test_the_clients_deadline_closes_the_connection(
    serve: Serve, stub: Stub, openai_model: MakeModel, conversation: Make
) -> None:
    """The client's deadline closes the model server's connection."""
    stub.script(FAULTS["fault-hang-before"]())
    async with serve(openai_model(limits=Limits())) as generator:
        with pytest.raises(DeadlineExceeded):
            await events_of(generator, conversation(), seconds=0.2)
        await eventually(lambda: stub.requests[0].closed_at is not None)


async def test_a_client_that_stops_reading_stops_the_model(
    serve: Serve, stub: Stub, openai_model: MakeModel, openai_request: Make
) -> None:
    """While the client does not read, the generator reads little from the model server, and no event is lost."""
    payload = sse(chunk({"content": "x" * 4000}))
    count = 10_000  # 40 MB, several times what sockets hold
    stub.script(Answer((*[payload * 10] * (count // 10), sse(chunk({}, "stop")), DONE), content_type=STREAM))
    async with serve(openai_model(limits=Limits())) as generator:
        call = generator.Generate(openai_request(b'{"stream":true}'))
        read = len((await call.read()).events)

        def written() -> int:
            return stub.requests[0].written

        before = -1
        while written() != before:
            before = written()
            await asyncio.sleep(0.3)
        assert before < 15_000_000
        while batch := await call.read():
            read += len(batch.events)
    assert read == count + 1


async def test_the_model_server_gets_the_callers_trace(
    serve: Serve, stub: Stub, openai_model: MakeModel, conversation: Make
) -> None:
    """The model server gets a traceparent of the caller's trace."""
    trace = "0af7651916cd43dd8448eb211c80319c"
    async with serve(openai_model()) as generator:
        call = generator.Generate(conversation(), metadata=(("traceparent", f"00-{trace}-b7ad6b7169203331-01"),))
        while await call.read():
            pass
    assert stub.requests[0].headers["traceparent"].split("-")[1] == trace
