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
    Found,
    Message,
    OriginalRequest,
    Passage,
    PromptOptions,
    PromptStyle,
    Retrieval,
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


def words(action: Action) -> tuple[Detector, ...]:
    return (Detector("words", action),)


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


def of(kind: type, events: Sequence[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def test_the_order_of_events() -> None:
    """What the answer rests on, the model's events as they came, the steps."""
    world = World()
    events = await world.events(turn())
    assert [type(event) for event in events] == [Context, Start, Delta, Delta, Finish, Usage, Done]
    context = of(Context, events)[0]
    assert context.query == QUESTION
    assert [each.id for each in context.passages] == ["p1", "p2"]
    assert context.prompt == world.generator.prompts[0].messages
    assert "1.md: the ferry leaves at nine" in context.prompt[-1].text
    assert [step.name for step in context.steps] == ["retrieve", "budget"]
    assert steps(events) == ["retrieve", "budget", "first token", "generate"]


async def test_without_an_index_nothing_is_searched() -> None:
    """The model is asked without sources, and the context says that nothing was searched."""
    world = World()
    events = await world.events(turn(retrieval=Retrieval()))
    assert world.retriever.queries == []
    assert of(Context, events)[0].query == ""
    assert world.generator.prompts[0].messages[-1].text == QUESTION


async def test_the_input_is_checked_while_passages_are_fetched() -> None:
    """Neither waits for the other."""
    world, both = World(), asyncio.Barrier(2)

    class Retriever(FakeRetriever):
        async def retrieve(
            self, principal: Principal, retrieval: Retrieval, query: str, top: int, deadline: Deadline
        ) -> Found:
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
    """The model is not asked while the input is being judged, however quick everything else is."""
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


class Waiting(FakeGuardrails):
    """Detectors that only report wait for `verdict`."""

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


async def test_who_only_reports_does_not_keep_the_model_waiting() -> None:
    """The model is asked beside it; what is found stands before the first words, and passes nothing through."""
    guardrails = Waiting()
    world = World(guardrails=guardrails)
    asked = turn(
        "my secret ferry",
        style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE,
        detectors=Detectors(input=words(Action.REPORT)),
        original=OriginalRequest(json=ORIGINAL),
    )
    events: list[Event] = []
    collecting = asyncio.ensure_future(world.collect(asked, events))
    await eventually(lambda: bool(world.generator.prompts))
    await asyncio.sleep(0.02)
    assert events == []
    guardrails.verdict.set()
    await collecting
    assert [type(event) for event in events][:4] == [Context, Detections, Start, Delta]
    assert of(Detections, events)[0].findings[0].text == "secret"
    assert world.generator.prompts[0].passthrough_json == b""
    assert "report on input" in steps(events)


async def test_a_reporter_that_fails_and_must_not() -> None:
    """Nothing of the answer has left: the question is refused by the failure's status, and the model is stopped."""
    guardrails = Waiting(fails=True)
    world = World(guardrails=guardrails)
    collecting = asyncio.ensure_future(world.events(turn(detectors=Detectors(input=words(Action.REPORT)))))
    await eventually(lambda: bool(world.generator.prompts))
    guardrails.verdict.set()
    with pytest.raises(Blocked) as caught:
        await collecting
    assert http_status(caught.value) == 429
    assert world.generator.closed == 1


async def test_a_stopped_question_is_told_of_with_what_others_report() -> None:
    """The findings of both, each once."""
    guardrails = Waiting()
    guardrails.verdict.set()
    world = World(guardrails=guardrails)
    both = Detectors(input=(*words(Action.REPORT), *words(Action.BLOCK)))
    events = await world.events(turn("my secret", detectors=both, answers_blocked=True))
    found = [finding.action for event in of(Detections, events) for finding in event.findings]
    assert found == [Action.BLOCK, Action.REPORT]
    assert world.generator.prompts == []
    guardrails.fails = True
    events = await world.events(turn("my", detectors=Detectors(input=words(Action.REPORT)), answers_blocked=True))
    assert [len(event.failures) for event in of(Detections, events)] == [1]
    assert of(Finish, events)[0].reason == "content_filter"


async def test_who_leaves_takes_the_reporters_along() -> None:
    """Nobody judges for a client that is gone."""
    cancelled = asyncio.Event()

    class Guardrails(Waiting):
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
    """The error says what was found, and the model is never asked."""
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


async def test_a_redacted_question_is_what_is_searched_and_asked() -> None:
    """The original words reach neither the model nor what the answer rests on."""
    world = World()
    events = await world.events(
        turn("a secret ferry", history=HISTORY, detectors=Detectors(input=words(Action.REDACT)))
    )
    assert world.retriever.queries == ["a secret ferry", "a [REDACTED] ferry"]
    prompt = world.generator.prompts[0]
    assert prompt.question == "a [REDACTED] ferry"
    spoken = [message.text for message in prompt.messages if message.role in ("user", "tool")]
    assert spoken[:2] == ["an old [REDACTED]", "a [REDACTED] result"]
    assert spoken[2].startswith("a [REDACTED] ferry")
    # The documents hold the word by themselves; a policy judges what a request says as the system.
    assert prompt.messages[1].text == "[REDACTED] of the system"
    context = of(Context, events)[0]
    assert context.query == "a [REDACTED] ferry"
    assert [event.item for event in of(Detections, events)] == [0, 1, 3, 4]


async def test_retrieval_results_of_the_original_question_are_dropped() -> None:
    """What is shown was found by the redacted question."""
    world = World()
    world.retriever.indexes["docs"] = [passage(1, "secret"), passage(2, "[REDACTED]")]
    events = await world.events(
        turn("secret", retrieval=Retrieval(("docs",), top=1), detectors=Detectors(input=words(Action.REDACT)))
    )
    assert [each.id for each in of(Context, events)[0].passages] == ["p2"]


async def test_a_stopped_passage_is_left_out() -> None:
    """A document with instructions in it does not reach the model; the others do."""
    world = World()
    events = await world.events(turn(detectors=Detectors(context=words(Action.BLOCK))))
    assert [each.id for each in of(Context, events)[0].passages] == ["p1"]
    assert [each.id for each in world.generator.prompts[0].sources] == ["p1"]
    assert [(event.direction, event.item) for event in of(Detections, events)] == [(Direction.CONTEXT, 1)]
    assert "check context" in steps(events)


async def test_a_redacted_passage_is_what_the_model_sees() -> None:
    """In the messages and in the sources."""
    world = World()
    await world.events(turn(detectors=Detectors(context=words(Action.REDACT))))
    prompt = world.generator.prompts[0]
    assert "secret" not in str(prompt.messages)
    assert [source.text for source in prompt.sources] == ["the ferry leaves at nine", "a [REDACTED] ferry"]


async def test_output_goes_through_its_detectors() -> None:
    """Text is redacted on its way, and what was found is told before it."""
    world = World(generator=FakeGenerator.saying("the sec", "ret", " is out"))
    events = await world.events(turn(detectors=Detectors(output=words(Action.REDACT))))
    assert "".join(event.text for event in of(Delta, events)) == "the [REDACTED] is out"
    assert len(of(Detections, events)) == 1
    assert of(Usage, events) == [Usage(7, 3)]


async def test_a_blocked_answer_has_numbers_of_tokens() -> None:
    """The model's own never came, so the prompt and what was said are counted."""
    world = World(generator=FakeGenerator.saying("the ", "secret"))
    events = await world.events(turn(retrieval=Retrieval(), detectors=Detectors(output=words(Action.BLOCK))))
    assert [type(event) for event in events][-3:] == [Finish, Usage, Done]
    assert of(Finish, events)[0].reason == "content_filter"
    # "the Withheld." as the fake counts, a word a token.
    assert of(Usage, events)[0].completion_tokens == 2
    assert of(Usage, events)[0].prompt_tokens > 5
    assert world.generator.closed == 1


async def test_choices_are_counted_apart() -> None:
    """Their pieces come in turns; a word of one does not go on in another."""
    said: Batch = [Delta(0, "no"), Delta(1, "yes"), Delta(0, " way"), Finish(0, "stop"), Finish(1, "stop")]
    world = World(generator=FakeGenerator([said]))
    (usage,) = of(Usage, await world.events(turn(retrieval=Retrieval())))
    assert usage.completion_tokens == 3


async def test_an_answer_survives_that_nobody_counts() -> None:
    """Numbers of tokens are not worth one that was made."""

    class Generator(FakeGenerator):
        async def count_tokens(self, *args: Any) -> TokenCounts:
            if self.prompts:
                raise Unavailable("gone")
            return await super().count_tokens(*args)

    world = World(generator=Generator([[Delta(0, "a"), Finish(0, "stop")]]))
    events = await world.events(turn(retrieval=Retrieval()))
    assert [type(event) for event in events] == [Context, Delta, Finish, Done]


ORIGINAL = b'{"model":"m","messages":[{"role":"user","content":"x"}]}'


async def test_a_pass_through_is_not_touched() -> None:
    """The request goes to the model as it came, its chunks come back as they are; only the time is added."""
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
    """An OpenAI request for which nothing is found, or nothing fits, goes to the model as it came."""
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
    assert of(Context, events) == []
    assert steps(events) == ["check input", "retrieve", "budget", "first token", "generate"]


@pytest.mark.parametrize(
    "detectors",
    [
        Detectors(output=words(Action.REPORT)),
        Detectors(input=words(Action.REDACT)),
        Detectors(context=words(Action.BLOCK)),
    ],
)
async def test_what_was_changed_or_must_be_checked_never_passes_through(detectors: Detectors) -> None:
    """A redacted question, a stopped passage or an answer to check: the request as it came must not go out."""
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


async def test_no_sources_are_no_reason_not_to_ask() -> None:
    """In dialects without a pass-through the model is asked with an empty list of sources."""
    world = World()
    await world.events(turn(retrieval=Retrieval(("empty",), top=3)))
    assert world.generator.prompts[0].messages[-1].text == f"{QUESTION}\n\nSources:\n"


async def test_only_what_fits_is_used() -> None:
    """A passage that is too large is left out; a smaller one behind it still comes in."""
    world = World()
    world.retriever.indexes["docs"] = [passage(1, "ferry " * 1000), passage(2, "ferry")]
    world.generator.window = 1500
    events = await world.events(turn("ferry"))
    assert [each.id for each in of(Context, events)[0].passages] == ["p2"]


@pytest.mark.parametrize("index", ["docs", "empty"])
async def test_a_prompt_that_is_too_long_is_refused(index: str) -> None:
    """Equal to the window is fine, one more is not, whether anything was found or not."""
    world = World()
    world.generator.window = 3
    plain = turn("one two three", retrieval=Retrieval((index,), top=3), style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE)
    await world.events(plain)
    with pytest.raises(InvalidRequest, match="Prompt length exceeds context window"):
        await world.events(replace(plain, question="one two three four"))


async def test_the_last_event_says_what_became_of_the_passages() -> None:
    """Also where nothing of them was used; nothing where nothing was searched."""
    world = World(generator=FakeGenerator([[Completion(b"{}")]]))
    world.retriever.indexes["docs"] = [passage(1, "ferry"), passage(2, "ferry " * 9000)]
    asked = turn("ferry", style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE, original=OriginalRequest(json=ORIGINAL))
    done = (await world.events(asked))[-1]
    assert isinstance(done, Done)
    assert done.selection == Selection((world.retriever.indexes["docs"][0],), 2, 0, 1)
    world.retriever.indexes["docs"].pop(0)
    done = (await world.events(asked))[-1]
    assert isinstance(done, Done)
    assert done.selection == Selection((), 0, 0, 1)
    done = (await world.events(turn(retrieval=Retrieval())))[-1]
    assert isinstance(done, Done)
    assert done.selection is None


@pytest.mark.parametrize("passthrough", [True, False])
async def test_an_index_that_is_only_named_must_exist(passthrough: bool) -> None:
    """It is refused before an objection, and before the model is asked."""
    world = World()
    asked = Turn(
        LOCAL,
        "q",
        original=OriginalRequest(json=ORIGINAL, passthrough=passthrough, required_indexes=("docs", "nowhere")),
    )
    for each in (asked, replace(asked, original=replace(asked.original, objection=InvalidRequest("wrong")))):
        with pytest.raises(NotFound, match="nowhere"):
            await world.events(each)
    assert world.generator.prompts == []


async def test_the_look_for_an_index_is_timed() -> None:
    """Nothing that a client waits for is missing among the steps."""
    world = World(generator=FakeGenerator([[Completion(b"{}")]]))
    asked = Turn(LOCAL, "", original=OriginalRequest(json=ORIGINAL, passthrough=True, required_indexes=("docs",)))
    assert steps(await world.events(asked)) == ["find index", "first token", "generate"]


async def test_an_objection_is_raised_before_anything_is_done() -> None:
    """Once the indexes are known to exist."""
    world = World()
    objection = InvalidRequest("wrong", field="messages")
    with pytest.raises(InvalidRequest) as caught:
        await world.events(turn(original=OriginalRequest(required_indexes=("docs",), objection=objection)))
    assert caught.value is objection
    assert (world.retriever.queries, world.generator.prompts) == ([], [])


async def test_an_unknown_index_is_raised_before_the_model_is_asked() -> None:
    """Nothing was yielded yet, so that it can be a status."""
    world = World()
    with pytest.raises(NotFound, match="nowhere"):
        await world.events(turn(retrieval=Retrieval(("nowhere",), top=1)))
    assert world.generator.prompts == []


async def test_of_two_failures_the_inputs_counts() -> None:
    """An unknown detector and an unknown index: always the same error, whichever came first."""
    detectors = Detectors(input=(Detector("nobody", Action.BLOCK),))
    for _ in range(5):
        with pytest.raises(NotFound, match="detector"):
            await World().events(turn(retrieval=Retrieval(("nowhere",), top=1), detectors=detectors))


@pytest.mark.parametrize("script", [[], [[Start(b"{}")]]])
async def test_a_model_that_says_nothing_is_a_failure(script: list[Batch]) -> None:
    """Not an empty answer: nobody could tell it from a real one."""
    for asked in (turn(), Turn(LOCAL, "", original=OriginalRequest(json=ORIGINAL, passthrough=True))):
        with pytest.raises(Unavailable, match="no answer"):
            await World(generator=FakeGenerator(list(script))).events(asked)


async def test_a_failing_model_fails_the_answer() -> None:
    """What came before it is out already."""
    world = World(generator=FakeGenerator([[Delta(0, "a")], Unavailable("gone")]))
    out: list[Event] = []
    with pytest.raises(Unavailable):
        await world.collect(turn(), out)
    assert of(Delta, out) == [Delta(0, "a")]


@pytest.mark.parametrize("detectors", [Detectors(), Detectors(output=words(Action.REPORT))])
@pytest.mark.parametrize("passthrough", [False, True])
async def test_leaving_closes_the_model(detectors: Detectors, passthrough: bool) -> None:
    """A client that leaves in mid-stream: the model's iterator is closed before the pipeline's is."""
    gate = asyncio.Event()
    world = World(generator=FakeGenerator([[Delta(0, "a")], [Delta(0, "b")]], gate=gate))
    original = Turn(LOCAL, "", original=OriginalRequest(json=ORIGINAL, passthrough=True))
    asked = original if passthrough else turn(detectors=detectors)
    async with aclosing(world.answer(asked)) as batches:
        await anext(batches)
    assert world.generator.closed == 1
    assert len(asyncio.all_tasks()) == 1


async def test_leaving_before_the_first_event_stops_both_halves() -> None:
    """A client that leaves while the input is judged and passages are fetched: neither goes on."""
    stopped: list[str] = []

    async def forever(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(name)

    class Retriever(FakeRetriever):
        async def retrieve(self, *_: Any) -> Found:
            await forever("retriever")
            return Found()

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
    """The verdict alone is enough; the search is given up."""

    class Retriever(FakeRetriever):
        async def retrieve(self, *_: Any) -> Found:
            await asyncio.Event().wait()
            return Found()

    world = World(retriever=Retriever())
    with pytest.raises(Blocked):
        await asyncio.wait_for(
            world.events(turn("my secret", detectors=Detectors(input=words(Action.BLOCK)))), timeout=5
        )


async def test_every_step_gets_the_requests_deadline() -> None:
    """One deadline, set at the edge, is what all services are given."""
    seen: list[Deadline] = []

    class Retriever(FakeRetriever):
        async def retrieve(
            self, principal: Principal, retrieval: Retrieval, query: str, top: int, deadline: Deadline
        ) -> Found:
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
    """Answers the prompts one after the other, each with these pieces."""
    *first, last = [FakeGenerator.words(*texts) for texts in scripts]
    return FakeGenerator(last, scripts=deque(first), only_quotes=only_quotes)


def rewriting(question: str = "and on Sundays", *, follow_ups: bool = False, **more: Any) -> Turn:
    prompting = PromptOptions(rewrite=True, follow_ups=follow_ups)
    return turn(question, history=CONVERSATION, prompting=prompting, **more)


async def test_what_the_model_makes_of_the_question_is_searched() -> None:
    """After the question itself; what is shown was found by it, while the model answers the question as asked."""
    world = World(generator=scripted([ON_SUNDAYS], ["No."]))
    world.retriever.indexes["docs"].insert(0, passage(3, "Sundays and"))
    events = await world.events(rewriting(retrieval=Retrieval(("docs",), top=1)))
    assert world.retriever.queries == ["and on Sundays", ON_SUNDAYS]
    context = of(Context, events)[0]
    assert (context.query, context.notes) == (ON_SUNDAYS, ())
    assert [each.id for each in context.passages] == ["p1"]
    assert world.generator.prompts[1].question == "and on Sundays"
    assert steps(events) == ["retrieve", "rewrite", "budget", "first token", "generate"]
    assert of(Done, events)[0].steps[1].usage == Usage(7, 1)
    assert of(Usage, events) == [Usage(7, 1)]


async def test_a_question_that_needs_no_change_is_searched_once() -> None:
    """What was found while it was being judged is used."""
    world = World(generator=scripted([QUESTION], ["No."]))
    await world.events(rewriting(QUESTION))
    assert world.retriever.queries == [QUESTION]


async def test_a_search_query_that_could_not_be_made_is_noted() -> None:
    """The answer comes all the same."""
    world = World(generator=scripted([""], ["No."]))
    events = await world.events(rewriting())
    context = of(Context, events)[0]
    assert context.query == "and on Sundays"
    assert [note.subject for note in context.notes] == [Subject.QUERY]
    assert world.retriever.queries == ["and on Sundays"]


async def test_only_redacted_words_make_a_search_query() -> None:
    """The model that makes it may be anywhere; where it makes none, the redacted question is searched for."""
    detectors = Detectors(input=words(Action.REDACT))
    for query, searched in (("the ferry", "the ferry"), ("", "my [REDACTED]")):
        world = World(generator=scripted([query], ["No."]))
        await world.events(replace(rewriting("my secret"), detectors=detectors))
        assert "secret" not in str(world.generator.prompts[0].messages)
        assert world.retriever.queries == ["my secret", searched]


async def test_no_search_query_is_made_before_the_verdict() -> None:
    """A blocked question reaches no model at all."""
    world = World(generator=scripted(["the ferry"], ["No."]))
    with pytest.raises(Blocked):
        await world.events(replace(rewriting("my secret"), detectors=Detectors(input=words(Action.BLOCK))))
    assert world.generator.prompts == []


async def test_leaving_while_the_query_is_made_stops_the_model() -> None:
    """The stream that makes it is closed, and nothing else begins."""
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
    """The model gets what there is room for, and it is said how much is missing."""
    world = World()
    world.generator.window = 2000
    old = (Message("user", "w " * 900), Message("assistant", "w " * 900))
    events = await world.events(turn(history=(*old, *CONVERSATION)))
    context = of(Context, events)[0]
    assert context.left_out == 2
    assert [note.subject for note in context.notes] == [Subject.PROMPT]
    assert world.generator.prompts[0].messages[1:3] == CONVERSATION


async def test_a_question_that_is_too_long_for_the_window_is_refused() -> None:
    """With or without a search; the caller of an API that keeps its conversation whole gets it refused for that."""
    world = World()
    world.generator.window = 200
    for asked in (turn("w " * 300), turn("w " * 300, retrieval=Retrieval())):
        with pytest.raises(InvalidRequest, match="Prompt length exceeds context window"):
            await world.events(asked)
    kept = turn(history=(Message("user", "w " * 300),), style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE)
    with pytest.raises(InvalidRequest, match="Prompt length exceeds context window"):
        await world.events(kept)
    assert world.generator.prompts == []


FOLLOWED = ("At ", "nine.", "\n<", "<And on", " Sundays?>", ">\n<<Where", "?>>")
QUESTIONS = FollowUps(("And on Sundays?", "Where?"))


async def test_follow_up_questions_are_asked_for_and_cut_out() -> None:
    """They are an event of their own, behind the model's and before the end."""
    world = World(generator=FakeGenerator.saying(*FOLLOWED))
    events = await world.events(turn(prompting=PromptOptions(follow_ups=True)))
    assert "<<" in world.generator.prompts[0].messages[0].text
    assert "".join(event.text for event in of(Delta, events)) == "At nine."
    assert [type(event) for event in events][-4:] == [FollowUps, Finish, Usage, Done]
    assert of(FollowUps, events) == [QUESTIONS]


async def test_where_nobody_wants_questions_nothing_is_cut_out() -> None:
    """Double brackets are text then."""
    world = World(generator=FakeGenerator.saying(*FOLLOWED))
    events = await world.events(turn())
    assert "<<" not in world.generator.prompts[0].messages[0].text
    assert "".join(event.text for event in of(Delta, events)) == "".join(FOLLOWED)


async def test_the_detectors_judge_the_questions_too() -> None:
    """Redacted in a question as in the text, each by itself; a place in the answer has what is there alone."""
    said = ("The secret: nine.\n", "<<Is the sec", "ret out?>>", "<<When?>>")
    world = World(generator=FakeGenerator.saying(*said))
    events = await world.events(
        turn(detectors=Detectors(output=words(Action.REDACT)), prompting=PromptOptions(follow_ups=True))
    )
    assert "".join(event.text for event in of(Delta, events)) == "The [REDACTED]: nine."
    assert of(FollowUps, events) == [FollowUps(("Is the [REDACTED] out?", "When?"))]
    findings = [finding for event in of(Detections, events) for finding in event.findings]
    assert [(each.start, each.end) for each in findings] == [(4, 10), (None, None)]


@pytest.mark.parametrize("action", [Action.REDACT, Action.BLOCK])
async def test_what_cutting_the_questions_out_puts_together_is_judged(action: Action) -> None:
    """The detectors judge what the client reads, not what the model wrote."""
    world = World(generator=FakeGenerator.saying("The sec<<Wh", "y?>>ret is nine."))
    events = await world.events(
        turn(detectors=Detectors(output=words(action)), prompting=PromptOptions(follow_ups=True))
    )
    text = "".join(event.text for event in of(Delta, events))
    assert text == ("The [REDACTED] is nine." if action is Action.REDACT else f"The {MESSAGE}")


@pytest.mark.parametrize("said", ["<<Is the secret out?>>", "<<Why?>> secret", "<<Why?>>\n secret"])
async def test_a_blocked_answer_has_no_questions(said: str) -> None:
    """Wherever it was stopped: the fallback is shown whole, and nothing of a question."""
    world = World(generator=FakeGenerator.saying("At nine.\n", said))
    events = await world.events(
        turn(detectors=Detectors(output=words(Action.BLOCK)), prompting=PromptOptions(follow_ups=True))
    )
    text = "".join(event.text for event in of(Delta, events))
    assert text.endswith(MESSAGE)
    assert "<" not in text
    assert of(FollowUps, events) == []
    assert [event.reason for event in of(Finish, events)] == ["content_filter"]


async def test_a_model_that_only_quotes_is_asked_for_neither() -> None:
    """The answer says so, and a double bracket that it quotes stays."""
    world = World(generator=scripted(["a << b >> c"], only_quotes=True))
    events = await world.events(rewriting(follow_ups=True))
    assert len(world.generator.prompts) == 1
    assert "<<" not in world.generator.prompts[0].messages[0].text
    assert [note.subject for note in of(Context, events)[0].notes] == [Subject.QUERY, Subject.PROMPT]
    assert "".join(event.text for event in of(Delta, events)) == "a << b >> c"


async def test_the_rerankers_order_and_what_is_missing_without_one() -> None:
    """The passages by its scores where there are any; else the answer comes with a note."""
    world, wanted = World(), Retrieval(("docs",), top=3, semantic_ranker=True)
    events = await world.events(turn(retrieval=wanted))
    assert [note.subject for note in of(Context, events)[0].notes] == [Subject.RESULTS]
    first, second = world.retriever.indexes["docs"]
    world.retriever.indexes["docs"] = [replace(first, reranker_score=1.0), replace(second, reranker_score=2.0)]
    context = of(Context, await world.events(turn(retrieval=wanted)))[0]
    assert [each.id for each in context.passages] == ["p2", "p1"]
    assert context.notes == ()
    [kept] = of(Context, await world.events(turn(retrieval=replace(wanted, minimum_reranker_score=1.5))))[
        0
    ].passages
    assert kept.id == "p2"
    world.retriever.not_reranked = "The reranker 'r' failed."
    [note] = of(Context, await world.events(turn(retrieval=wanted)))[0].notes
    assert note.text == "The reranker 'r' failed: the order is the search's own."


async def test_the_answers_language_is_said_to_the_model() -> None:
    """In the system's words."""
    world = World()
    await world.events(turn(prompting=PromptOptions(language="de")))
    assert "answer in this one: de." in world.generator.prompts[0].messages[0].text


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        (Action.REPORT, '{"error": {"message": "no secret", "code": 400}}'),
        (Action.REDACT, '{"error":{"message":"no [REDACTED]","code":400}}'),
        (Action.BLOCK, f'{{"error":{{"message":"{WITHHELD}","type":"withheld"}}}}'),
    ],
)
async def test_a_model_servers_refusal_is_judged(action: Action, expected: str) -> None:
    """Its words are text that clients read; the status stays."""
    refusal = UpstreamRejected("refused", status=400, body='{"error": {"message": "no secret", "code": 400}}')
    world = World(generator=FakeGenerator([refusal]))
    with pytest.raises(UpstreamRejected) as caught:
        await world.events(turn(detectors=Detectors(output=words(action))))
    assert (caught.value.status, caught.value.body) == (400, expected)


@pytest.mark.parametrize(
    ("detectors", "unary"), [(Detectors(), True), (Detectors(output=words(Action.REDACT)), False)]
)
async def test_a_unary_answer_is_asked_for_without_a_stream(detectors: Detectors, unary: bool) -> None:
    """Where no detector judges it while it grows."""
    world = World()
    await world.events(turn(unary=True, detectors=detectors))
    assert [prompt.unary for prompt in world.generator.prompts] == [unary]


async def test_an_answer_in_one_piece_is_asked_for_in_one_piece() -> None:
    """With output detectors, too: the model server gets the request, with what the detectors left of it."""
    body = b'{"model":"m","stream":false,"messages":[{"role":"user","content":"a secret"}],"top_logprobs":1e400}'
    said = b'{"id": "x", "choices": [{"index": 0, "message": {"content": "ok", "refusal": null}}]}'
    world = World(generator=FakeGenerator([[Completion(said)]]))
    events = await world.events(
        turn(
            "a secret",
            style=PromptStyle.CONTEXT_IN_SYSTEM_MESSAGE,
            retrieval=Retrieval(),
            parameters_json=b'{"top_logprobs":1e400}',
            detectors=Detectors(input=words(Action.REDACT), output=words(Action.REDACT)).as_requested(),
            original=OriginalRequest(json=body, in_one_piece=True),
        )
    )
    [prompt] = world.generator.prompts
    assert (prompt.in_one_piece, prompt.messages[-1].text) == (True, "a [REDACTED]")
    assert prompt.parameters_json == b'{"top_logprobs":1e400}'
    assert of(Completion, events) == [Completion(said)]
