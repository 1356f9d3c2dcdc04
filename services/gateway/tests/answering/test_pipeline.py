"""The steps of an answer: checks, retrieval and the model, and a client that leaves."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
from causeway_testing.gateway.answering import FakeGenerator, FakeGuardrails
from causeway_testing.gateway.pipeline import ORIGINAL, QUESTION, World, of_type, passage, steps, turn, words
from causeway_testing.gateway.retrieval import FakeRetriever
from causeway_testing.servers import eventually
from gateway.domain import (
    Action,
    Batch,
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
    Message,
    OriginalRequest,
    PromptStyle,
    Retrieval,
    SearchResults,
    Start,
    TokenCounts,
    Turn,
    Usage,
    Verdict,
)
from gateway.ports.answering import Prompt
from servicekit.deadline import Deadline
from servicekit.errors import Blocked, NotFound, Unavailable, http_status
from servicekit.principal import LOCAL, Principal


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
