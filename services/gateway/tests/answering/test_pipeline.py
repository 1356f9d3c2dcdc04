import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from causeway_testing.gateway.answering import FakeGenerator, FakeGuardrails
from causeway_testing.gateway.application import FakePictures
from causeway_testing.gateway.retrieval import FakeRetriever
from causeway_testing.servers import eventually
from gateway.answering import prompts
from gateway.answering.error_text import WITHHELD
from gateway.answering.pipeline import Pipeline
from gateway.domain import (
    Action,
    Batch,
    Chunk,
    Completion,
    Context,
    Delta,
    Detections,
    Detector,
    DetectorFailure,
    Detectors,
    Direction,
    Done,
    Event,
    Finish,
    FollowUps,
    Message,
    OriginalRequest,
    Passage,
    PromptOptions,
    PromptStyle,
    Retrieval,
    SearchResults,
    Selection,
    Start,
    Subject,
    TokenCounts,
    Turn,
    Usage,
    Verdict,
)
from gateway.ports.answering import Prompt
from servicekit.deadline import Deadline
from servicekit.errors import Blocked, InvalidRequest, NotFound, Unavailable, UpstreamRejected, http_status
from servicekit.principal import LOCAL, Principal

MESSAGE = "Withheld."
QUESTION = "when does the ferry leave"


def passage(number: int, text: str) -> Passage:
    return Passage(f"p{number}", "docs", f"d{number}", f"{number}.md", f"{number}.md", text, 1.0 / number)


def words(action: Action, *, requested: bool = False) -> tuple[Detector, ...]:
    return (Detector("words", action, requested=requested),)


@dataclass
class World:
    retriever: FakeRetriever = field(
        default_factory=lambda: FakeRetriever(
            {"docs": [passage(1, "the ferry leaves at nine"), passage(2, "a secret ferry")], "empty": []}
        )
    )
    generator: FakeGenerator = field(default_factory=lambda: FakeGenerator.saying("At ", "nine"))
    guardrails: FakeGuardrails = field(default_factory=FakeGuardrails)
    pictures: FakePictures = field(default_factory=FakePictures)

    def answer(self, turn: Turn, seconds: float = 10) -> AsyncGenerator[Batch, None]:
        pipeline = Pipeline(self.retriever, self.generator, self.guardrails, self.pictures)
        return pipeline.answer(turn, Deadline.after(seconds))

    async def events(self, turn: Turn) -> list[Event]:
        events: list[Event] = []
        await self.collect(turn, events)
        return events

    async def collect(self, turn: Turn, events: list[Event]) -> None:
        async with aclosing(self.answer(turn)) as batches:
            async for batch in batches:
                events += batch


def turn(question: str = QUESTION, **more: Any) -> Turn:
    defaults: dict[str, Any] = {"retrieval": Retrieval(("docs",), top=3), "blocked_message": MESSAGE}
    return Turn(LOCAL, question, **(defaults | more))


def steps(events: Sequence[Event]) -> list[str]:
    assert isinstance(events[-1], Done)
    return [step.name for step in events[-1].steps]


def of_type(kind: type, events: Sequence[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def test_the_order_of_events() -> None:
    """The context comes first, then the model's events in their order, and the steps last."""
    world = World()
    events = await world.events(turn())
    assert [type(event) for event in events] == [Context, Start, Delta, Delta, Finish, Usage, Done]
    context = of_type(Context, events)[0]
    assert context.query == QUESTION
    assert [passage.id for passage in context.passages] == ["p1", "p2"]
    assert context.prompt == world.generator.prompts[0].messages
    assert "1.md: the ferry leaves at nine" in context.prompt[-1].text
    assert [step.name for step in context.steps] == ["retrieve", "budget"]
    assert steps(events) == ["retrieve", "budget", "first token", "generate"]


async def test_without_an_index_nothing_is_searched() -> None:
    """A turn without an index is not searched, and the model gets no sources."""
    world = World()
    events = await world.events(turn(retrieval=Retrieval()))
    assert world.retriever.queries == []
    assert of_type(Context, events)[0].query == ""
    assert world.generator.prompts[0].messages[-1].text == QUESTION


async def test_the_input_is_checked_while_passages_are_fetched() -> None:
    """The check of the input and the retrieval run at the same time."""
    world, both = World(), asyncio.Barrier(2)

    class Retriever(FakeRetriever):
        async def retrieve(
            self, principal: Principal, retrieval: Retrieval, query: str, top: int, deadline: Deadline
        ) -> SearchResults:
            await asyncio.wait_for(both.wait(), 60)
            return await super().retrieve(principal, retrieval, query, top, deadline)

    class Guardrails(FakeGuardrails):
        async def detect(self, *args: Any, **more: Any) -> tuple[tuple[Verdict, ...], tuple[DetectorFailure, ...]]:
            await asyncio.wait_for(both.wait(), 60)
            return await super().detect(*args, **more)

    world.retriever, world.guardrails = Retriever(world.retriever.indexes), Guardrails()
    events = await world.events(turn(detectors=Detectors(input=words(Action.BLOCK))))
    assert steps(events)[:2] in (["check input", "retrieve"], ["retrieve", "check input"])


async def test_nothing_leaves_before_the_verdict() -> None:
    """The model is not called before the verdict on the input."""
    world, verdict = World(), asyncio.Event()

    class Guardrails(FakeGuardrails):
        async def detect(self, *args: Any, **more: Any) -> tuple[tuple[Verdict, ...], tuple[DetectorFailure, ...]]:
            await verdict.wait()
            return await super().detect(*args, **more)

    world.guardrails = Guardrails()
    async with aclosing(world.answer(turn(detectors=Detectors(input=words(Action.BLOCK))))) as batches:
        first = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(0.02)
        assert world.retriever.queries == [QUESTION]
        assert world.generator.prompts == []
        verdict.set()
        await first
        assert len(world.generator.prompts) == 1


class WaitingGuardrails(FakeGuardrails):
    """Guardrails whose reporting detectors wait for `verdict`."""

    def __init__(self, *, fails: bool = False) -> None:
        super().__init__()
        self.verdict = asyncio.Event()
        self.fails = fails

    async def detect(self, *args: Any, **more: Any) -> tuple[tuple[Verdict, ...], tuple[DetectorFailure, ...]]:
        if args[2][0].action is not Action.REPORT:
            return await super().detect(*args, **more)
        await self.verdict.wait()
        if self.fails:
            return tuple(Verdict(Action.BLOCK, (), "") for _ in args[3]), (DetectorFailure("words", "no", 429),)
        return await super().detect(*args, **more)


async def test_the_model_does_not_wait_for_reporting_detectors() -> None:
    """The model runs concurrently with a reporting detector.

    The findings precede the answer, and nothing is passed through.
    """
    guardrails = WaitingGuardrails()
    world = World(guardrails=guardrails)
    requested = turn(
        "my secret ferry",
        style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE,
        detectors=Detectors(input=words(Action.REPORT)),
        original=OriginalRequest(json=ORIGINAL),
    )
    events: list[Event] = []
    collecting = asyncio.ensure_future(world.collect(requested, events))
    await eventually(lambda: bool(world.generator.prompts))
    await asyncio.sleep(0.02)
    assert events == []
    guardrails.verdict.set()
    await collecting
    assert [type(event) for event in events][:4] == [Context, Detections, Start, Delta]
    assert of_type(Detections, events)[0].findings[0].text == "secret"
    assert world.generator.prompts[0].passthrough_json == b""
    assert "report on input" in steps(events)


async def test_a_failing_reporting_detector_refuses_the_question() -> None:
    """A failing reporting detector refuses the question with its status and stops the model."""
    guardrails = WaitingGuardrails(fails=True)
    world = World(guardrails=guardrails)
    collecting = asyncio.ensure_future(world.events(turn(detectors=Detectors(input=words(Action.REPORT)))))
    await eventually(lambda: bool(world.generator.prompts))
    guardrails.verdict.set()
    with pytest.raises(Blocked) as caught:
        await collecting
    assert http_status(caught.value) == 429
    assert world.generator.closed == 1


async def test_a_blocked_question_has_the_findings_of_all_detectors() -> None:
    """A blocked question returns the findings of blocking and reporting detectors, each once."""
    guardrails = WaitingGuardrails()
    guardrails.verdict.set()
    world = World(guardrails=guardrails)
    both = Detectors(input=(*words(Action.REPORT), *words(Action.BLOCK)))
    events = await world.events(turn("my secret", detectors=both, answers_blocked=True))
    found = [finding.action for event in of_type(Detections, events) for finding in event.findings]
    assert found == [Action.BLOCK, Action.REPORT]
    assert world.generator.prompts == []
    guardrails.fails = True
    events = await world.events(turn("my", detectors=Detectors(input=words(Action.REPORT)), answers_blocked=True))
    assert [len(event.failures) for event in of_type(Detections, events)] == [1]
    assert of_type(Finish, events)[0].reason == "content_filter"


async def test_leaving_cancels_the_reporting_detectors() -> None:
    """The reporting detectors are cancelled when the client leaves."""
    cancelled = asyncio.Event()

    class Guardrails(WaitingGuardrails):
        async def detect(self, *args: Any, **more: Any) -> tuple[tuple[Verdict, ...], tuple[DetectorFailure, ...]]:
            try:
                return await super().detect(*args, **more)
            except asyncio.CancelledError:
                cancelled.set()
                raise

    world = World(guardrails=Guardrails())
    leaving = asyncio.ensure_future(world.events(turn(detectors=Detectors(input=words(Action.REPORT)))))
    await eventually(lambda: bool(world.generator.prompts))
    leaving.cancel()
    await asyncio.wait([leaving])
    assert cancelled.is_set()


async def test_a_blocked_question_is_refused() -> None:
    """A blocked question is refused with its finding, and the model is not called."""
    world = World()
    with pytest.raises(Blocked, match="secret"):
        await world.events(turn("my secret", detectors=Detectors(input=words(Action.BLOCK))))
    assert world.generator.prompts == []


HISTORY = (
    Message("system", "secret of the system"),
    Message("user", "an old secret"),
    Message("assistant", "no"),
    Message("tool", "a secret result"),
)


async def test_a_redacted_question_is_searched_and_answered() -> None:
    """The redacted question is searched, and the model and the context have only the redacted words."""
    world = World()
    events = await world.events(
        turn("a secret ferry", history=HISTORY, detectors=Detectors(input=words(Action.REDACT)))
    )
    assert world.retriever.queries == ["a secret ferry", "a [REDACTED] ferry"]
    prompt = world.generator.prompts[0]
    assert prompt.question == "a [REDACTED] ferry"
    texts = [message.text for message in prompt.messages if message.role in ("user", "tool")]
    assert texts[:2] == ["an old [REDACTED]", "a [REDACTED] result"]
    assert texts[2].startswith("a [REDACTED] ferry")
    # The documents contain the word themselves. A policy judges the system message of a request.
    assert prompt.messages[1].text == "[REDACTED] of the system"
    context = of_type(Context, events)[0]
    assert context.query == "a [REDACTED] ferry"
    assert [event.item for event in of_type(Detections, events)] == [0, 1, 3, 4]


async def test_retrieval_results_of_the_original_question_are_dropped() -> None:
    """The passages of a redacted question are found by the redacted words."""
    world = World()
    world.retriever.indexes["docs"] = [passage(1, "secret"), passage(2, "[REDACTED]")]
    events = await world.events(
        turn("secret", retrieval=Retrieval(("docs",), top=1), detectors=Detectors(input=words(Action.REDACT)))
    )
    assert [passage.id for passage in of_type(Context, events)[0].passages] == ["p2"]


async def test_a_blocked_passage_is_left_out() -> None:
    """A blocked passage does not reach the model. The other passages do."""
    world = World()
    events = await world.events(turn(detectors=Detectors(context=words(Action.BLOCK))))
    assert [passage.id for passage in of_type(Context, events)[0].passages] == ["p1"]
    assert [source.id for source in world.generator.prompts[0].sources] == ["p1"]
    assert [(event.direction, event.item) for event in of_type(Detections, events)] == [(Direction.CONTEXT, 1)]
    assert "check context" in steps(events)


async def test_the_model_gets_the_redacted_passage() -> None:
    """A redacted passage is redacted in the messages and in the sources."""
    world = World()
    await world.events(turn(detectors=Detectors(context=words(Action.REDACT))))
    prompt = world.generator.prompts[0]
    assert "secret" not in str(prompt.messages)
    assert [source.text for source in prompt.sources] == ["the ferry leaves at nine", "a [REDACTED] ferry"]


async def test_the_answer_is_judged() -> None:
    """The answer is redacted, and its findings are returned as an event."""
    world = World(generator=FakeGenerator.saying("the sec", "ret", " is out"))
    events = await world.events(turn(detectors=Detectors(output=words(Action.REDACT))))
    assert "".join(event.text for event in of_type(Delta, events)) == "the [REDACTED] is out"
    assert len(of_type(Detections, events)) == 1
    assert of_type(Usage, events) == [Usage(7, 3)]


async def test_the_tokens_of_a_blocked_answer_are_counted() -> None:
    """The tokens of a blocked answer are counted by the gateway, and its model is closed."""
    world = World(generator=FakeGenerator.saying("the ", "secret"))
    events = await world.events(turn(retrieval=Retrieval(), detectors=Detectors(output=words(Action.BLOCK))))
    assert [type(event) for event in events][-3:] == [Finish, Usage, Done]
    assert of_type(Finish, events)[0].reason == "content_filter"
    # The fake counts "the Withheld." as two tokens, one for each word.
    assert of_type(Usage, events)[0].completion_tokens == 2
    assert of_type(Usage, events)[0].prompt_tokens > 5
    assert world.generator.closed == 1


async def test_choices_are_counted_apart() -> None:
    """The tokens of each choice are counted separately."""
    answer: Batch = [Delta(0, "no"), Delta(1, "yes"), Delta(0, " way"), Finish(0, "stop"), Finish(1, "stop")]
    world = World(generator=FakeGenerator([answer]))
    (usage,) = of_type(Usage, await world.events(turn(retrieval=Retrieval())))
    assert usage.completion_tokens == 3


async def test_an_answer_without_a_count_is_complete() -> None:
    """An answer is complete without a usage if its tokens cannot be counted."""

    class Generator(FakeGenerator):
        async def count_tokens(self, *args: Any) -> TokenCounts:
            if self.prompts:
                raise Unavailable("gone")
            return await super().count_tokens(*args)

    world = World(generator=Generator([[Delta(0, "a"), Finish(0, "stop")]]))
    events = await world.events(turn(retrieval=Retrieval()))
    assert [type(event) for event in events] == [Context, Delta, Finish, Done]


ORIGINAL = b'{"model":"m","messages":[{"role":"user","content":"x"}]}'


async def test_a_pass_through_stays_unchanged() -> None:
    """A passed-through request and its chunks stay unchanged, and only the steps are added."""
    world = World(generator=FakeGenerator([[Chunk(b'{"a":1}')], [Chunk(b'{"a":2}')]]))
    events = await world.events(
        Turn(LOCAL, "", model="m", original=OriginalRequest(json=ORIGINAL, passthrough=True))
    )
    assert world.generator.prompts == [Prompt(LOCAL, "m", passthrough_json=ORIGINAL)]
    assert world.retriever.queries == []
    assert events[:-1] == [Chunk(b'{"a":1}'), Chunk(b'{"a":2}')]
    assert steps(events) == ["first token", "generate"]


@pytest.mark.parametrize("index", ["empty", "docs"])
async def test_nothing_found_is_a_pass_through(index: str) -> None:
    """A request of OpenAI without passages that fit is passed through."""
    world = World(generator=FakeGenerator([[Completion(b"{}")]], window=20))
    events = await world.events(
        turn(
            "ferry",
            retrieval=Retrieval((index,), top=1),
            style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE,
            detectors=Detectors(input=words(Action.BLOCK)),
            original=OriginalRequest(json=ORIGINAL),
        )
    )
    assert world.generator.prompts[0].passthrough_json == ORIGINAL
    assert of_type(Context, events) == []
    assert steps(events) == ["check input", "retrieve", "budget", "first token", "generate"]


@pytest.mark.parametrize(
    "detectors",
    [
        Detectors(output=words(Action.REPORT)),
        Detectors(input=words(Action.REDACT)),
        Detectors(context=words(Action.BLOCK)),
    ],
)
async def test_redaction_blocking_and_output_detectors_prevent_a_pass_through(detectors: Detectors) -> None:
    """A redacted question, a blocked passage or output detectors prevent the pass-through."""
    world = World()
    world.retriever.indexes["docs"] = [passage(2, "a secret ferry")] if detectors.context else []
    await world.events(
        turn(
            "my secret",
            style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE,
            detectors=detectors,
            original=OriginalRequest(json=ORIGINAL),
        )
    )
    assert world.generator.prompts[0].passthrough_json == b""


async def test_without_sources_the_model_is_still_called() -> None:
    """A model of another dialect is called with an empty list of sources."""
    world = World()
    await world.events(turn(retrieval=Retrieval(("empty",), top=3)))
    assert world.generator.prompts[0].messages[-1].text == f"{QUESTION}\n\nSources:\n"


async def test_only_passages_that_fit_are_used() -> None:
    """A passage that is too large is left out, and a smaller one after it is used."""
    world = World()
    world.retriever.indexes["docs"] = [passage(1, "ferry " * 1000), passage(2, "ferry")]
    world.generator.window = 1500
    events = await world.events(turn("ferry"))
    assert [passage.id for passage in of_type(Context, events)[0].passages] == ["p2"]


@pytest.mark.parametrize("index", ["docs", "empty"])
async def test_a_prompt_that_is_too_long_is_refused(index: str) -> None:
    """A prompt larger than the window is refused, with or without passages."""
    world = World()
    world.generator.window = 3
    plain = turn("one two three", retrieval=Retrieval((index,), top=3), style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE)
    await world.events(plain)
    with pytest.raises(InvalidRequest, match="Prompt length exceeds context window"):
        await world.events(replace(plain, question="one two three four"))


async def test_the_last_event_has_the_selection_of_passages() -> None:
    """The last event has the selection of passages, also an empty one. Without a search it has none."""
    world = World(generator=FakeGenerator([[Completion(b"{}")]]))
    world.retriever.indexes["docs"] = [passage(1, "ferry"), passage(2, "ferry " * 9000)]
    requested = turn("ferry", style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE, original=OriginalRequest(json=ORIGINAL))
    done = (await world.events(requested))[-1]
    assert isinstance(done, Done)
    assert done.selection == Selection((world.retriever.indexes["docs"][0],), 2, 0, 1)
    world.retriever.indexes["docs"].pop(0)
    done = (await world.events(requested))[-1]
    assert isinstance(done, Done)
    assert done.selection == Selection((), 0, 0, 1)
    done = (await world.events(turn(retrieval=Retrieval())))[-1]
    assert isinstance(done, Done)
    assert done.selection is None


@pytest.mark.parametrize("passthrough", [True, False])
async def test_a_required_index_must_exist(passthrough: bool) -> None:
    """An unknown required index is refused before the deferred error is raised and the model is called."""
    world = World()
    requested = Turn(
        LOCAL,
        "q",
        original=OriginalRequest(json=ORIGINAL, passthrough=passthrough, required_indexes=("docs", "nowhere")),
    )
    for each in (
        requested,
        replace(requested, original=replace(requested.original, deferred_error=InvalidRequest("wrong"))),
    ):
        with pytest.raises(NotFound, match="nowhere"):
            await world.events(each)
    assert world.generator.prompts == []


async def test_the_check_of_an_index_is_timed() -> None:
    """The check of a required index is a step with its own time."""
    world = World(generator=FakeGenerator([[Completion(b"{}")]]))
    requested = Turn(
        LOCAL, "", original=OriginalRequest(json=ORIGINAL, passthrough=True, required_indexes=("docs",))
    )
    assert steps(await world.events(requested)) == ["find index", "first token", "generate"]


async def test_the_deferred_error_is_raised_before_the_search() -> None:
    """The deferred error of a request is raised before the search and the model."""
    world = World()
    error = InvalidRequest("wrong", field="messages")
    with pytest.raises(InvalidRequest) as caught:
        await world.events(turn(original=OriginalRequest(required_indexes=("docs",), deferred_error=error)))
    assert caught.value is error
    assert (world.retriever.queries, world.generator.prompts) == ([], [])


async def test_an_unknown_index_is_raised_before_the_model_is_called() -> None:
    """An unknown index is refused before the model is called."""
    world = World()
    with pytest.raises(NotFound, match="nowhere"):
        await world.events(turn(retrieval=Retrieval(("nowhere",), top=1)))
    assert world.generator.prompts == []


async def test_the_failure_of_the_input_check_takes_precedence() -> None:
    """The failure of the input check takes precedence over the failure of the retrieval."""
    detectors = Detectors(input=(Detector("missing", Action.BLOCK),))
    for _ in range(5):
        with pytest.raises(NotFound, match="detector"):
            await World().events(turn(retrieval=Retrieval(("nowhere",), top=1), detectors=detectors))


@pytest.mark.parametrize("script", [[], [[Start(b"{}")]]])
async def test_a_model_without_output_is_a_failure(script: list[Batch]) -> None:
    """A model without output causes an error and not an empty answer."""
    for requested in (turn(), Turn(LOCAL, "", original=OriginalRequest(json=ORIGINAL, passthrough=True))):
        with pytest.raises(Unavailable, match="no answer"):
            await World(generator=FakeGenerator(list(script))).events(requested)


async def test_a_failing_model_fails_the_answer() -> None:
    """A failure of the model is raised after its earlier text."""
    world = World(generator=FakeGenerator([[Delta(0, "a")], Unavailable("gone")]))
    out: list[Event] = []
    with pytest.raises(Unavailable):
        await world.collect(turn(), out)
    assert of_type(Delta, out) == [Delta(0, "a")]


@pytest.mark.parametrize("detectors", [Detectors(), Detectors(output=words(Action.REPORT))])
@pytest.mark.parametrize("passthrough", [False, True])
async def test_leaving_closes_the_model(detectors: Detectors, passthrough: bool) -> None:
    """The model is closed when the client leaves in the middle of a stream."""
    gate = asyncio.Event()
    world = World(generator=FakeGenerator([[Delta(0, "a")], [Delta(0, "b")]], gate=gate))
    original = Turn(LOCAL, "", original=OriginalRequest(json=ORIGINAL, passthrough=True))
    requested = original if passthrough else turn(detectors=detectors)
    async with aclosing(world.answer(requested)) as batches:
        await anext(batches)
    assert world.generator.closed == 1
    assert len(asyncio.all_tasks()) == 1


async def test_leaving_before_the_first_event_stops_both_halves() -> None:
    """The check of the input and the retrieval stop when the client leaves."""
    stopped: list[str] = []

    async def forever(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(name)

    class Retriever(FakeRetriever):
        async def retrieve(self, *_: Any) -> SearchResults:
            await forever("retriever")
            return SearchResults()

    class Guardrails(FakeGuardrails):
        async def detect(self, *_: Any, **__: Any) -> tuple[tuple[Verdict, ...], tuple[DetectorFailure, ...]]:
            await forever("guardrails")
            return (), ()

    world = World(retriever=Retriever(), guardrails=Guardrails())
    waiting = asyncio.ensure_future(anext(world.answer(turn(detectors=Detectors(input=words(Action.BLOCK))))))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert sorted(stopped) == ["guardrails", "retriever"]


async def test_a_blocked_question_does_not_wait_for_retrieval() -> None:
    """A blocked question is refused without waiting for the retrieval."""

    class Retriever(FakeRetriever):
        async def retrieve(self, *_: Any) -> SearchResults:
            await asyncio.Event().wait()
            return SearchResults()

    world = World(retriever=Retriever())
    with pytest.raises(Blocked):
        await asyncio.wait_for(
            world.events(turn("my secret", detectors=Detectors(input=words(Action.BLOCK)))), timeout=5
        )


async def test_every_step_gets_the_requests_deadline() -> None:
    """All services get the one deadline of the request."""
    seen: list[Deadline] = []

    class Retriever(FakeRetriever):
        async def retrieve(
            self, principal: Principal, retrieval: Retrieval, query: str, top: int, deadline: Deadline
        ) -> SearchResults:
            seen.append(deadline)
            return await super().retrieve(principal, retrieval, query, top, deadline)

    class Generator(FakeGenerator):
        def generate(self, prompt: Prompt, deadline: Deadline) -> AsyncGenerator[Batch, None]:
            seen.append(deadline)
            return super().generate(prompt, deadline)

        async def count_tokens(self, *args: Any) -> TokenCounts:
            seen.append(args[-1])
            return await super().count_tokens(*args)

    class Guardrails(FakeGuardrails):
        async def detect(self, *args: Any, **more: Any) -> tuple[tuple[Verdict, ...], tuple[DetectorFailure, ...]]:
            seen.append(args[4])
            return await super().detect(*args, **more)

    world = World(Retriever({"docs": []}), Generator(FakeGenerator.saying("a").script), Guardrails())
    await world.events(turn(retrieval=Retrieval(("docs",)), detectors=Detectors(input=words(Action.BLOCK))))
    assert len(seen) == 4  # to search, to judge, to count for the number of passages, to answer
    assert len(set(seen)) == 1


CONVERSATION = (Message("user", QUESTION), Message("assistant", "At nine."))
ON_SUNDAYS = "does the ferry leave on Sundays"


def scripted(*scripts: Sequence[str], only_quotes: bool = False) -> FakeGenerator:
    """Return a generator that answers the prompts in order with these pieces."""
    *first, last = [FakeGenerator.words(*texts) for texts in scripts]
    return FakeGenerator(last, scripts=deque(first), only_quotes=only_quotes)


def rewriting(question: str = "and on Sundays", *, follow_ups: bool = False, **more: Any) -> Turn:
    prompting = PromptOptions(rewrite=True, follow_ups=follow_ups)
    return turn(question, history=CONVERSATION, prompting=prompting, **more)


async def test_the_rewritten_query_is_searched() -> None:
    """The rewritten query is searched after the question, and the model gets the original question."""
    world = World(generator=scripted([ON_SUNDAYS], ["No."]))
    world.retriever.indexes["docs"].insert(0, passage(3, "Sundays and"))
    events = await world.events(rewriting(retrieval=Retrieval(("docs",), top=1)))
    assert world.retriever.queries == ["and on Sundays", ON_SUNDAYS]
    context = of_type(Context, events)[0]
    assert (context.query, context.notes) == (ON_SUNDAYS, ())
    assert [passage.id for passage in context.passages] == ["p1"]
    assert world.generator.prompts[1].question == "and on Sundays"
    assert steps(events) == ["retrieve", "rewrite", "budget", "first token", "generate"]
    assert of_type(Done, events)[0].steps[1].usage == Usage(7, 1)
    assert of_type(Usage, events) == [Usage(7, 1)]


async def test_a_question_that_needs_no_change_is_searched_once() -> None:
    """A question that is not changed by the rewriting is searched once."""
    world = World(generator=scripted([QUESTION], ["No."]))
    await world.events(rewriting(QUESTION))
    assert world.retriever.queries == [QUESTION]


async def test_a_failed_rewriting_leaves_a_note() -> None:
    """A failed rewriting leaves a note, and the question is searched."""
    world = World(generator=scripted([""], ["No."]))
    events = await world.events(rewriting())
    context = of_type(Context, events)[0]
    assert context.query == "and on Sundays"
    assert [note.subject for note in context.notes] == [Subject.QUERY]
    assert world.retriever.queries == ["and on Sundays"]


async def test_the_redacted_question_is_rewritten() -> None:
    """The rewriting gets the redacted question, and without a query the redacted question is searched."""
    detectors = Detectors(input=words(Action.REDACT))
    for query, searched in (("the ferry", "the ferry"), ("", "my [REDACTED]")):
        world = World(generator=scripted([query], ["No."]))
        await world.events(replace(rewriting("my secret"), detectors=detectors))
        assert "secret" not in str(world.generator.prompts[0].messages)
        assert world.retriever.queries == ["my secret", searched]


async def test_a_blocked_question_is_not_rewritten() -> None:
    """A blocked question is not rewritten."""
    world = World(generator=scripted(["the ferry"], ["No."]))
    with pytest.raises(Blocked):
        await world.events(replace(rewriting("my secret"), detectors=Detectors(input=words(Action.BLOCK))))
    assert world.generator.prompts == []


async def test_leaving_stops_the_rewriting() -> None:
    """The rewriting stops when the client leaves, and no other step begins."""
    world = World(generator=FakeGenerator([[Delta(0, "a")], [Delta(0, "b")]], gate=asyncio.Event()))
    waiting = asyncio.ensure_future(anext(world.answer(rewriting())))
    await asyncio.sleep(0.02)
    assert len(world.generator.prompts) == 1
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (world.generator.closed, len(world.generator.prompts)) == (1, 1)
    assert len(asyncio.all_tasks()) == 1


async def test_a_conversation_that_is_too_long_is_cut() -> None:
    """A conversation that is too long is cut, and a note has the number of missing messages."""
    world = World()
    world.generator.window = 2000
    old = (Message("user", "w " * 900), Message("assistant", "w " * 900))
    events = await world.events(turn(history=(*old, *CONVERSATION)))
    context = of_type(Context, events)[0]
    assert context.omitted_messages == 2
    assert [note.subject for note in context.notes] == [Subject.PROMPT]
    assert world.generator.prompts[0].messages[1:3] == CONVERSATION


async def test_a_question_that_is_too_long_for_the_window_is_refused() -> None:
    """A question that is too long is refused, and so is a conversation that the client keeps complete."""
    world = World()
    world.generator.window = 200
    for requested in (turn("w " * 300), turn("w " * 300, retrieval=Retrieval())):
        with pytest.raises(InvalidRequest, match="Prompt length exceeds context window"):
            await world.events(requested)
    uncut = turn(history=(Message("user", "w " * 300),), style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE)
    with pytest.raises(InvalidRequest, match="Prompt length exceeds context window"):
        await world.events(uncut)
    assert world.generator.prompts == []


FOLLOWED = ("At ", "nine.", "\n<", "<And on", " Sundays?>", ">\n<<Where", "?>>")
QUESTIONS = FollowUps(("And on Sundays?", "Where?"))


async def test_follow_up_questions_are_requested_and_cut_out() -> None:
    """Follow-up questions are requested, cut out of the text and returned before the finish."""
    world = World(generator=FakeGenerator.saying(*FOLLOWED))
    events = await world.events(turn(prompting=PromptOptions(follow_ups=True)))
    assert "<<" in world.generator.prompts[0].messages[0].text
    assert "".join(event.text for event in of_type(Delta, events)) == "At nine."
    assert [type(event) for event in events][-4:] == [FollowUps, Finish, Usage, Done]
    assert of_type(FollowUps, events) == [QUESTIONS]


async def test_without_follow_up_questions_brackets_stay() -> None:
    """Double brackets stay in the text if no follow-up questions are requested."""
    world = World(generator=FakeGenerator.saying(*FOLLOWED))
    events = await world.events(turn())
    assert "<<" not in world.generator.prompts[0].messages[0].text
    assert "".join(event.text for event in of_type(Delta, events)) == "".join(FOLLOWED)


async def test_the_detectors_judge_the_questions_too() -> None:
    """Follow-up questions are redacted too, and their findings have no positions."""
    pieces = ("The secret: nine.\n", "<<Is the sec", "ret out?>>", "<<When?>>")
    world = World(generator=FakeGenerator.saying(*pieces))
    events = await world.events(
        turn(detectors=Detectors(output=words(Action.REDACT)), prompting=PromptOptions(follow_ups=True))
    )
    assert "".join(event.text for event in of_type(Delta, events)) == "The [REDACTED]: nine."
    assert of_type(FollowUps, events) == [FollowUps(("Is the [REDACTED] out?", "When?"))]
    findings = [finding for event in of_type(Detections, events) for finding in event.findings]
    assert [(found.start, found.end) for found in findings] == [(4, 10), (None, None)]


@pytest.mark.parametrize("action", [Action.REDACT, Action.BLOCK])
async def test_the_text_without_the_questions_is_judged(action: Action) -> None:
    """The detectors judge the text without the questions, as the client reads it."""
    world = World(generator=FakeGenerator.saying("The sec<<Wh", "y?>>ret is nine."))
    events = await world.events(
        turn(detectors=Detectors(output=words(action)), prompting=PromptOptions(follow_ups=True))
    )
    text = "".join(event.text for event in of_type(Delta, events))
    assert text == ("The [REDACTED] is nine." if action is Action.REDACT else f"The {MESSAGE}")


@pytest.mark.parametrize("text", ["<<Is the secret out?>>", "<<Why?>> secret", "<<Why?>>\n secret"])
async def test_a_blocked_answer_has_no_questions(text: str) -> None:
    """A blocked answer has the text and no questions."""
    world = World(generator=FakeGenerator.saying("At nine.\n", text))
    events = await world.events(
        turn(detectors=Detectors(output=words(Action.BLOCK)), prompting=PromptOptions(follow_ups=True))
    )
    text = "".join(event.text for event in of_type(Delta, events))
    assert text.endswith(MESSAGE)
    assert "<" not in text
    assert of_type(FollowUps, events) == []
    assert [event.reason for event in of_type(Finish, events)] == ["content_filter"]


async def test_a_model_that_only_quotes_gets_neither_request() -> None:
    """A model that only quotes gets neither rewriting nor follow-up questions, and notes say so."""
    world = World(generator=scripted(["a << b >> c"], only_quotes=True))
    events = await world.events(rewriting(follow_ups=True))
    assert len(world.generator.prompts) == 1
    assert "<<" not in world.generator.prompts[0].messages[0].text
    assert [note.subject for note in of_type(Context, events)[0].notes] == [Subject.QUERY, Subject.PROMPT]
    assert "".join(event.text for event in of_type(Delta, events)) == "a << b >> c"


async def test_the_order_of_the_reranker_and_the_note_without_it() -> None:
    """Passages have the order of the reranker's scores. Without scores the answer has a note."""
    world, retrieval = World(), Retrieval(("docs",), top=3, semantic_ranker=True)
    events = await world.events(turn(retrieval=retrieval))
    assert [note.subject for note in of_type(Context, events)[0].notes] == [Subject.RESULTS]
    first, second = world.retriever.indexes["docs"]
    world.retriever.indexes["docs"] = [replace(first, reranker_score=1.0), replace(second, reranker_score=2.0)]
    context = of_type(Context, await world.events(turn(retrieval=retrieval)))[0]
    assert [passage.id for passage in context.passages] == ["p2", "p1"]
    assert context.notes == ()
    [kept] = of_type(Context, await world.events(turn(retrieval=replace(retrieval, minimum_reranker_score=1.5))))[
        0
    ].passages
    assert kept.id == "p2"
    world.retriever.not_reranked = "The reranker 'r' failed."
    [note] = of_type(Context, await world.events(turn(retrieval=retrieval)))[0].notes
    assert note.text == "The reranker 'r' failed: the order is that of the search."


async def test_the_system_message_names_the_language() -> None:
    """The system message names the language of the answer."""
    world = World()
    await world.events(turn(prompting=PromptOptions(language="de")))
    assert prompts.IN_LANGUAGE.format("de") in world.generator.prompts[0].messages[0].text


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Action.REPORT, '{"error": {"message": "no secret", "code": 400}}'),
        (Action.REDACT, '{"error":{"message":"no [REDACTED]","code":400}}'),
        (Action.BLOCK, f'{{"error":{{"message":"{WITHHELD}","type":"withheld"}}}}'),
    ],
)
async def test_a_model_servers_refusal_is_judged(action: Action, expected: str) -> None:
    """The refusal of a model server is judged as an answer, and its status stays."""
    refusal = UpstreamRejected("refused", status=400, body='{"error": {"message": "no secret", "code": 400}}')
    world = World(generator=FakeGenerator([refusal]))
    with pytest.raises(UpstreamRejected) as caught:
        await world.events(turn(detectors=Detectors(output=words(action))))
    assert (caught.value.status, caught.value.body) == (400, expected)


@pytest.mark.parametrize(
    ("detectors", "unary"), [(Detectors(), True), (Detectors(output=words(Action.REDACT)), False)]
)
async def test_a_complete_answer_is_requested_without_a_stream(detectors: Detectors, unary: bool) -> None:
    """A complete answer is requested without a stream unless output detectors judge it."""
    world = World()
    await world.events(turn(unary=True, detectors=detectors))
    assert [prompt.unary for prompt in world.generator.prompts] == [unary]


async def test_a_complete_answer_is_requested_with_the_redacted_messages() -> None:
    """A complete answer is requested with the redacted messages and the other members unchanged."""
    body = b'{"model":"m","stream":false,"messages":[{"role":"user","content":"a secret"}],"top_logprobs":1e400}'
    answer = b'{"id": "x", "choices": [{"index": 0, "message": {"content": "ok", "refusal": null}}]}'
    world = World(generator=FakeGenerator([[Completion(answer)]]))
    events = await world.events(
        turn(
            "a secret",
            style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE,
            retrieval=Retrieval(),
            parameters_json=b'{"top_logprobs":1e400}',
            detectors=Detectors(
                input=words(Action.REDACT, requested=True), output=words(Action.REDACT, requested=True)
            ),
            original=OriginalRequest(json=body, in_one_piece=True),
        )
    )
    [prompt] = world.generator.prompts
    assert (prompt.in_one_piece, prompt.messages[-1].text) == (True, "a [REDACTED]")
    assert prompt.parameters_json == b'{"top_logprobs":1e400}'
    assert of_type(Completion, events) == [Completion(answer)]
