"""The contract of the port, on the fake and on the adapter with a real server over that fake."""

import asyncio
import hashlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

import pytest
from causeway.generator.v1 import generator_pb2 as pb
from causeway.generator.v1 import generator_pb2_grpc
from causeway_testing.gateway.answering import FakeGenerator
from causeway_testing.gateway.retrieval import FakeRetriever
from causeway_testing.servers import eventually, grpc_service
from gateway.answering.budget import NODE_TOKENS
from gateway.answering.context_selection import ContextSelection
from gateway.answering.timeline import Timeline
from gateway.clients.generator import DESCRIPTOR, GrpcGenerator
from gateway.domain import (
    Batch,
    Chunk,
    Completion,
    Delta,
    Event,
    Finish,
    Message,
    Model,
    Passage,
    Retrieval,
    SearchResults,
    Start,
    TokenCounts,
    Turn,
    Usage,
)
from gateway.ports.answering import Generator, Prompt
from servicekit.deadline import Deadline
from servicekit.errors import DeadlineExceeded, Unavailable, UpstreamRejected
from servicekit.principal import LOCAL, Principal

PROMPT = Prompt(
    LOCAL,
    "m",
    "why?",
    (Message("user", "why?", b"", b'{"name":"a"}'), Message("assistant", "", b'[{"type":"x"}]')),
    (Passage("p", "docs", "d", "a.md", "a.md#page=1", "text", 0.5),),
    b'{"temperature":0.5}',
)


class Servicer(generator_pb2_grpc.GeneratorServiceServicer):
    """The generator's service over the fake."""

    def __init__(self, fake: FakeGenerator) -> None:
        self._fake = fake
        self.raw: list[pb.GenerateResponse] = []
        self.counting = "words"
        self.counted: list[list[str]] = []

    async def Generate(  # noqa: N802  # the contract's name
        self, request: pb.GenerateRequest, context: Any
    ) -> AsyncGenerator[pb.GenerateResponse, None]:
        for response in self.raw:
            yield response
        async with aclosing(self._fake.generate(_prompt(request), Deadline.of(context))) as batches:
            async for batch in batches:
                yield pb.GenerateResponse(events=[made for event in batch for made in _messages(event)])

    async def CountTokens(self, request: pb.CountTokensRequest, context: Any) -> pb.CountTokensResponse:  # noqa: N802  # the contract's name
        messages = [Message(message.role, message.text) for message in request.messages]
        self.counted.append(list(request.texts))
        counts = await self._fake.count_tokens(
            Principal.from_proto(request.principal), request.model, request.texts, messages, Deadline.of(context)
        )
        return pb.CountTokensResponse(
            counts=counts.texts,
            messages_count=counts.messages,
            context_window=counts.context_window,
            only_quotes=counts.only_quotes,
            calls_tools=counts.calls_tools,
            counting=self.counting,
        )

    async def ListModels(self, request: pb.ListModelsRequest, context: Any) -> pb.ListModelsResponse:  # noqa: N802  # the contract's name
        models = await self._fake.models(Principal.from_proto(request.principal), Deadline.of(context))
        return pb.ListModelsResponse(
            models=[
                pb.Model(
                    name=model.name,
                    context_window=model.context_window,
                    owned_by=model.owned_by,
                    created=model.created,
                    ready=model.ready,
                )
                for model in models
            ]
        )


def _prompt(request: pb.GenerateRequest) -> Prompt:
    principal = Principal.from_proto(request.principal)
    if request.WhichOneof("prompt") == "openai_request_json":
        return Prompt(principal, request.model, passthrough_json=request.openai_request_json)
    conversation = request.conversation
    return Prompt(
        principal,
        request.model,
        conversation.question,
        tuple(Message(m.role, m.text, m.content_json, m.extra_json) for m in conversation.messages),
        tuple(Passage("p", "docs", "d", "a.md", s.name, s.text, s.score) for s in conversation.sources),
        conversation.parameters_json,
    )


def _messages(event: Event) -> list[pb.GenerateEvent]:
    """Return the events as the generator sends them: the members of a delta without a text are a separate event."""
    match event:
        case Start():
            return [pb.GenerateEvent(kind=pb.EVENT_KIND_START, raw_json=event.raw_json)]
        case Delta(text=""):
            if event.choice_json:
                return [_text(event)]
            return [pb.GenerateEvent(kind=pb.EVENT_KIND_DELTA, choice=event.choice, raw_json=event.delta_json)]
        case Delta():
            return [_text(event)]
        case Finish():
            return [
                pb.GenerateEvent(
                    kind=pb.EVENT_KIND_FINISH, choice=event.choice, text=event.reason, raw_json=event.choice_json
                )
            ]
        case Usage():
            usage = pb.Usage(prompt_tokens=event.prompt_tokens, completion_tokens=event.completion_tokens)
            return [pb.GenerateEvent(kind=pb.EVENT_KIND_USAGE, usage=usage, raw_json=event.raw_json)]
        case Chunk():
            return [pb.GenerateEvent(kind=pb.EVENT_KIND_CHUNK, raw_json=event.raw_json)]
        case Completion():
            return [pb.GenerateEvent(kind=pb.EVENT_KIND_COMPLETION, raw_json=event.raw_json)]
    raise AssertionError(event)


def _text(event: Delta) -> pb.GenerateEvent:
    return pb.GenerateEvent(
        kind=pb.EVENT_KIND_TEXT, choice=event.choice, text=event.text, raw_json=event.choice_json
    )


@pytest.fixture
def fake() -> FakeGenerator:
    return FakeGenerator()


@pytest.fixture
def servicer(fake: FakeGenerator) -> Servicer:
    return Servicer(fake)


@pytest.fixture
async def adapter(servicer: Servicer) -> AsyncIterator[GrpcGenerator]:
    def add(server: Any) -> None:
        generator_pb2_grpc.add_GeneratorServiceServicer_to_server(servicer, server)

    async with grpc_service(DESCRIPTOR, add) as channel:
        yield GrpcGenerator(channel)


@pytest.fixture(params=["fake", "grpc"])
def generator(request: pytest.FixtureRequest, fake: FakeGenerator, adapter: GrpcGenerator) -> Generator:
    return fake if request.param == "fake" else adapter


async def collect(generator: Generator, out: list[Batch], seconds: float = 5) -> None:
    async with aclosing(generator.generate(PROMPT, Deadline.after(seconds))) as batches:
        async for batch in batches:
            out += [batch]


SCRIPT: list[Any] = [
    [Start(b'{"id":"x"}')],
    [Delta(0, "a"), Delta(2, "\x00\U0001f600"), Delta(0, "", b'{"tool_calls":[1.0]}')],
    [Delta(0, "b", b"", b'{"logprobs":{}}'), Delta(1, "", b"", b'{"logprobs":{}}')],
    [Finish(0, "stop", b'{"stop_reason":1}'), Finish(2, "length"), Usage(7, 8, b'{"x":1.0}')],
    [Chunk(b'{"a":1}')],
    [Completion(b'{"b":2}')],
]


async def test_events_arrive_in_their_batches(fake: FakeGenerator, generator: Generator) -> None:
    """Events of every kind arrive with their bytes, in the batches in which they were sent."""
    fake.script = SCRIPT
    out: list[Batch] = []
    await collect(generator, out)
    assert [list(batch) for batch in out] == SCRIPT


async def test_the_prompt_arrives_complete(fake: FakeGenerator, adapter: GrpcGenerator) -> None:
    """A prompt arrives with all its fields. A passed-through request arrives without other fields."""
    fake.script = [[Delta(0, "a")]]
    await collect(adapter, [])
    assert fake.prompts == [PROMPT]
    passing = Prompt(LOCAL, "m", passthrough_json=b'{ "x":1.50}')
    async with aclosing(adapter.generate(passing, Deadline.after(5))) as batches:
        await anext(batches)
    assert fake.prompts[1] == passing


async def test_a_refusal_keeps_its_status_and_body(fake: FakeGenerator, generator: Generator) -> None:
    """A refusal keeps its status and its body, before and after the first event."""
    refusal = UpstreamRejected("no", status=429, body='{"error":"slow"}', retry_after=3)
    scripts: list[list[Any]] = [[refusal], [[Delta(0, "a")], refusal]]
    for script in scripts:
        fake.script = script
        out: list[Batch] = []
        with pytest.raises(UpstreamRejected) as caught:
            await collect(generator, out)
        assert (caught.value.status, caught.value.body, caught.value.retry_after) == (429, '{"error":"slow"}', 3)
        assert len(out) == len(script) - 1


async def test_closing_the_iterator_stops_the_model(fake: FakeGenerator, generator: Generator) -> None:
    """The model stops on the server's side when the client closes the iterator."""
    fake.script, fake.gate = [[Delta(0, "a")], [Delta(0, "b")]], asyncio.Event()
    async with aclosing(generator.generate(PROMPT, Deadline.after(5))) as batches:
        assert await anext(batches) == [Delta(0, "a")]
    await eventually(lambda: fake.closed == 1)


async def test_tokens_are_counted(generator: Generator) -> None:
    """Tokens are counted for each text, and for all messages together."""
    counts = await generator.count_tokens(LOCAL, "m", ["a b", ""], [Message("user", "c d e")], Deadline.after(5))
    assert counts == TokenCounts((2, 0), 3, 8192)


async def test_the_window_is_known_once_tokens_were_counted(generator: Generator) -> None:
    """The context window of a model is known once tokens were counted for this model."""
    assert generator.recent_properties("m") is None
    await generator.count_tokens(LOCAL, "m", (), (), Deadline.after(5))
    assert (generator.recent_properties("m"), generator.recent_properties("other")) == (
        TokenCounts((), 0, 8192),
        None,
    )


async def counts(generator: Generator, *texts: str) -> tuple[int, ...]:
    return (await generator.count_tokens(LOCAL, "m", texts, (), Deadline.after(5))).texts


async def test_a_text_is_counted_once(adapter: GrpcGenerator, servicer: Servicer) -> None:
    """A text is counted once. Its count is reused at another position of a later call."""
    assert await counts(adapter, "a b", "c") == (2, 1)
    assert await counts(adapter, "d e f", "c", "a b", "") == (3, 1, 2, 0)
    assert servicer.counted == [["a b", "c"], ["d e f", ""]]


async def test_texts_are_counted_again_after_a_change_of_the_model(
    adapter: GrpcGenerator, servicer: Servicer, fake: FakeGenerator
) -> None:
    """All texts are counted again if the server counts with another method."""
    await counts(adapter, "a b")
    servicer.counting = "others"
    assert await counts(adapter, "a b", "c") == (2, 1)
    assert servicer.counted == [["a b"], ["c"], ["a b", "c"]]


async def test_cached_counts_select_the_same_passages(servicer: Servicer, fake: FakeGenerator) -> None:
    """A client with cached counts selects the same passages of a seeded corpus as a new client."""
    dice = random.Random(7)
    words = ["ferry", "bridge", "harbour", "bearing", "valve", "pump", "rope", "lamp", "mast", "sail", "oar"]
    corpus = [
        Passage(f"p{at}", "docs", f"d{at}", f"{at}.md", f"{at}.md", " ".join(dice.choices(words, k=size)), 1.0)
        for at, size in enumerate(dice.choices(range(5, 400), k=200))
    ]

    class BestPassages(FakeRetriever):
        async def retrieve(self, *args: Any) -> SearchResults:
            return SearchResults(tuple(random.Random(args[2]).sample(corpus, args[3])))

    retriever = BestPassages({"docs": corpus})

    async def digest(client: Callable[[], GrpcGenerator]) -> str:
        sha256 = hashlib.sha256()
        for number in range(12):
            fake.window = (2048, 8192, 60_000)[number % 3]
            turn = Turn(LOCAL, f"why {number}?", retrieval=Retrieval(("docs",)), model=f"m{number % 3}")
            stage = ContextSelection(retriever, client(), NODE_TOKENS)
            found = await stage.search(turn, turn.question, Timeline(), Deadline.after(30))
            assert found is not None
            _, selection = await stage.select(turn, found, Timeline(), Deadline.after(30))
            sha256.update(repr([passage.id for passage in selection.passages]).encode() + b"%d" % selection.tokens)
        return sha256.hexdigest()

    def add(server: Any) -> None:
        generator_pb2_grpc.add_GeneratorServiceServicer_to_server(servicer, server)

    async with grpc_service(DESCRIPTOR, add) as channel:
        fresh = await digest(lambda: GrpcGenerator(channel))
        sent, servicer.counted = len(servicer.counted), []
        caching = GrpcGenerator(channel)
        assert await digest(lambda: caching) == fresh
        assert len(servicer.counted) < sent


async def test_estimates_are_not_cached(adapter: GrpcGenerator, servicer: Servicer) -> None:
    """Counts without the name of a counting method are estimates, and are not cached."""
    servicer.counting = ""
    for _ in range(2):
        assert await counts(adapter, "a b") == (2,)
    assert servicer.counted == [["a b"]] * 2


async def test_a_window_is_cached_for_five_seconds(servicer: Servicer) -> None:
    """The context window of a model is cached for five seconds."""
    now = 0.0

    def add(server: Any) -> None:
        generator_pb2_grpc.add_GeneratorServiceServicer_to_server(servicer, server)

    async with grpc_service(DESCRIPTOR, add) as channel:
        generator = GrpcGenerator(channel, lambda: now)
        await counts(generator)
        now = 4.9
        assert generator.recent_properties("m") is not None
        now = 5.0
        assert generator.recent_properties("m") is None


async def test_models_are_listed(generator: Generator) -> None:
    """Models are listed with all their fields."""
    assert await generator.models(LOCAL, Deadline.after(5)) == (Model("fake", 8192, "tests", 0, ready=True),)


async def test_an_unknown_kind_is_ignored(adapter: GrpcGenerator, servicer: Servicer) -> None:
    """Events of an unknown kind are ignored."""
    unknown = pb.GenerateEvent(kind=99, text="?")  # type: ignore[arg-type]  # not a kind of this version
    known = pb.GenerateEvent(kind=pb.EVENT_KIND_TEXT, text="a")
    servicer.raw = [pb.GenerateResponse(events=[unknown, pb.GenerateEvent(text="?"), known])]
    out: list[Batch] = []
    await collect(adapter, out)
    assert out == [[Delta(0, "a")]]


async def test_a_start_without_members_is_an_empty_object(adapter: GrpcGenerator, fake: FakeGenerator) -> None:
    """A start without members arrives as an empty object."""
    fake.script = [[Start(b"")]]
    out: list[Batch] = []
    await collect(adapter, out)
    assert out == [[Start(b"{}")]]


async def test_the_deadline_ends_the_call_on_both_sides(adapter: GrpcGenerator, fake: FakeGenerator) -> None:
    """The deadline ends the call of a slow model for the client and for the server."""
    fake.script, fake.gate = [[Delta(0, "a")], [Delta(0, "b")]], asyncio.Event()
    with pytest.raises(DeadlineExceeded):
        await collect(adapter, [], seconds=0.3)
    await eventually(lambda: fake.closed == 1)


async def test_a_generator_that_stops_during_a_stream_is_unavailable(fake: FakeGenerator) -> None:
    """If the generator stops during a stream, the client gets Unavailable at once."""
    fake.script, fake.gate = [[Delta(0, "a")], [Delta(0, "b")]], asyncio.Event()

    def add(server: Any) -> None:
        generator_pb2_grpc.add_GeneratorServiceServicer_to_server(Servicer(fake), server)
        servers.append(server)

    servers: list[Any] = []
    async with (
        grpc_service(DESCRIPTOR, add) as channel,
        aclosing(GrpcGenerator(channel).generate(PROMPT, Deadline.after(120))) as batches,
    ):
        await anext(batches)
        await servers[0].stop(0)
        with pytest.raises(Unavailable):
            await asyncio.wait_for(anext(batches), 60)
