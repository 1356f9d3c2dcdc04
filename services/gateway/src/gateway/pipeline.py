"""How a turn is answered, step by step. Knows no protocol and no transport."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import structlog
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, Unavailable

from gateway import budget, prompts, surroundings
from gateway.checks import BlockedQuestion, Checks
from gateway.context_selection import ContextSelection
from gateway.conversation_window import ConversationWindow, Fit
from gateway.detector_kinds import DetectorKinds
from gateway.domain import (
    Action,
    Batch,
    Chunk,
    Chunking,
    Completion,
    Context,
    Delta,
    Detections,
    DetectorInfo,
    Done,
    Event,
    Finish,
    Note,
    Passage,
    Picture,
    PromptStyle,
    Selection,
    Start,
    Turn,
    Usage,
)
from gateway.follow_up_stream import parted
from gateway.guard import OutputGuard
from gateway.notes import notes
from gateway.page_pictures import PagePictures
from gateway.ports import Generator, Guardrails, Pictures, Prompt, Retriever
from gateway.rewriting import QueryRewriting
from gateway.timeline import Timeline

A = TypeVar("A")
B = TypeVar("B")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A turn that may go to a model: checked, redacted and fit for its window, with what was found for it.

    Attributes:
        turn: What is left of the turn that was asked.
        selection: What was found; None where nothing was searched.
        detections: What the detectors found in either.
        query: What was searched for; empty where nothing was.
        left_out: Number of messages for which the window has no room.
        notes: What should be known besides.
        pictures: Pictures of pages that go with the passages.
    """

    turn: Turn
    selection: Selection | None = None
    detections: tuple[Detections, ...] = ()
    query: str = ""
    left_out: int = 0
    notes: tuple[Note, ...] = ()
    pictures: tuple[Picture, ...] = ()

    @property
    def passages(self) -> tuple[Passage, ...]:
        """What the answer rests on."""
        return self.selection.passages if self.selection else ()

    @property
    def passes_through(self) -> bool:
        """The model gets the request as it came: nothing was found or changed, and nothing is to be checked."""
        adds = self.passages or self.detections or self.turn.detectors.output
        return self.turn.passthrough or bool(self.turn.original_json and not adds)


class Pipeline:
    """Answers turns.

    Args:
        retriever: Finds passages.
        generator: Asks models.
        guardrails: Judges texts.
        pictures: Has pictures of pages.
        node_tokens: Tokens that a passage is taken to have before it is known.
    """

    def __init__(
        self,
        retriever: Retriever,
        generator: Generator,
        guardrails: Guardrails,
        pictures: Pictures,
        *,
        node_tokens: int = budget.NODE_TOKENS,
    ) -> None:
        self._retriever = retriever
        self._generator = generator
        self._guardrails = guardrails
        self._checks = Checks(guardrails)
        self._kinds = DetectorKinds(guardrails)
        self._rewriting = QueryRewriting(generator, self._checks)
        self._context = ContextSelection(retriever, generator, node_tokens)
        self._window = ConversationWindow(generator, node_tokens)
        self._pictures = PagePictures(pictures)

    async def answer(
        self, turn: Turn, deadline: Deadline, timeline: Timeline | None = None
    ) -> AsyncGenerator[Batch, None]:
        """The events of the answer, in batches of one at least, `Done` last.

        Closing the iterator stops everything that runs for it. Nothing is yielded before the model has begun, so
        that what fails until then can still be a status.

        Args:
            turn: What is asked.
            deadline: When it must be over.
            timeline: Notes what happens on the way, for whoever wants to know it however the answer ends.

        Raises:
            CausewayError: Whatever any step raises; `BlockedQuestion` where the detectors stop the question and
                nothing is to be said instead.
        """
        timeline = timeline or Timeline()
        turn, known = await self._admit(turn, timeline, deadline)
        try:
            prepared = await self._prepare(turn, timeline, deadline)
        except BlockedQuestion as blocked:
            if turn.blocked_is_empty:
                yield await self._nothing(turn, blocked, timeline, deadline)
                return
            if not turn.answers_blocked:
                raise
            yield _instead(turn, blocked, timeline)
            return
        turn = prepared.turn
        opening: list[Event] = []
        if prepared.passes_through:
            prompt = Prompt(turn.principal, turn.model, passthrough_json=turn.original_json)
        else:
            prompt = _prompt(prepared)
            opening = [_context(prepared, prompt, timeline, known), *prepared.detections]
        generated = self._generate(prompt, turn, timeline, deadline)
        shown = parted(generated, turn.blocked_message) if turn.follow_ups else generated
        async with aclosing(shown) as events:
            async for batch in events:
                yield [*opening, *batch] if opening else batch
                opening = []
        yield [Done(timeline.steps, prepared.selection)]

    async def _admit(
        self, turn: Turn, timeline: Timeline, deadline: Deadline
    ) -> tuple[Turn, tuple[DetectorInfo, ...]]:
        """Refuses what cannot be answered, an unknown index before anything else; see `DetectorKinds.admit`."""
        if turn.required_indexes:
            with timeline.step("find index"):
                await self._retriever.require(turn.principal, turn.required_indexes, deadline)
        if turn.objection is not None:
            raise turn.objection
        return await self._kinds.admit(turn, deadline)

    async def _prepare(self, turn: Turn, timeline: Timeline, deadline: Deadline) -> Prepared:
        """Checks, searches and selects: everything before the model is asked."""
        if turn.passthrough:
            return Prepared(turn)
        # Together: the search stays on the platform, nothing else happens before the verdict.
        (checked, found_in_input), found = await _together(
            self._checks.of_input(turn, timeline, deadline),
            self._context.search(turn, turn.question, timeline, deadline),
        )
        query = await self._rewriting.query(checked, timeline, deadline)
        if query.text != turn.question:
            found = await self._context.search(checked, query.text, timeline, deadline)
        before = found.passages if found else ()
        passages, found_in_context = await self._checks.of_context(checked, before, timeline, deadline)
        fit = await self._fit(checked, found and replace(found, passages=passages), timeline, deadline)
        pictures, no_more = await self._pictures.of(checked, fit, timeline, deadline)
        return Prepared(
            turn=fit.turn,
            pictures=pictures,
            selection=fit.selection,
            detections=found_in_input + found_in_context,
            query=query.text if found else "",
            left_out=fit.left_out,
            notes=notes(
                checked,
                fit.turn,
                query=query.note,
                found=found and replace(found, passages=passages),
                left_out=fit.left_out,
                pictures=no_more,
            ),
        )

    async def _fit(self, turn: Turn, found: Selection | None, timeline: Timeline, deadline: Deadline) -> Fit:
        """What the model gets of a conversation and of what was found for it."""
        if turn.style is PromptStyle.SOURCES_AFTER_QUESTION:
            return await self._window.fit(turn, found, timeline, deadline)
        if found is None:
            return Fit(turn, None)
        return Fit(*await self._context.select(turn, found, timeline, deadline))

    async def _generate(
        self, prompt: Prompt, turn: Turn, timeline: Timeline, deadline: Deadline
    ) -> AsyncGenerator[Batch, None]:
        """The model's events as they may leave: timed, and with numbers of tokens at the end.

        Raises:
            Unavailable: The model said nothing at all.
        """
        begin = time.perf_counter()
        timeline.model = turn.model
        spoke = counted = False
        texts: defaultdict[int, list[str]] = defaultdict(list)
        async with aclosing(self._released(prompt, turn, deadline)) as batches:
            async for batch in batches:
                if not spoke and any(isinstance(event, Delta | Finish | Chunk | Completion) for event in batch):
                    spoke = True
                    timeline.add("first token", time.perf_counter() - begin)
                for event in batch:
                    if type(event) is Delta:
                        texts[event.choice].append(event.text)
                    elif type(event) is Chunk:
                        timeline.chunks += 1
                        timeline.raw_json = event.raw_json
                    elif type(event) is Usage:
                        counted = True
                        timeline.usage = event
                    elif type(event) is Start:
                        timeline.start_json = event.raw_json
                    elif type(event) is Completion:
                        timeline.raw_json = event.raw_json
                    elif type(event) is Detections:
                        timeline.detections.append(event)
                if batch:
                    yield batch
        if not spoke:
            raise Unavailable("The model sent no answer.", retry_after=1)
        if not (counted or prompt.passthrough_json):
            # An answer that was stopped ends before the model says its numbers.
            usage = await self._count(prompt, ["".join(pieces) for pieces in texts.values()], deadline)
            if usage is not None:
                timeline.usage = usage
                yield [usage]
        timeline.add("generate", time.perf_counter() - begin)

    async def _nothing(self, turn: Turn, blocked: BlockedQuestion, timeline: Timeline, deadline: Deadline) -> Batch:
        """No answer to a question that was stopped; what was asked is counted, and no model hears of it."""
        counted = await self._count(_prompt(Prepared(turn)), [], deadline)
        return [
            Context("", (), (), timeline.steps),
            *blocked.detections,
            counted or Usage(0, 0),
            Done(timeline.steps),
        ]

    async def _count(self, prompt: Prompt, texts: list[str], deadline: Deadline) -> Usage | None:
        try:
            counts = await self._generator.count_tokens(
                prompt.principal, prompt.model, texts, prompt.messages, deadline
            )
        except CausewayError as error:
            _log.warning("tokens were not counted", error=error.message)
            return None
        return Usage(counts.messages, sum(counts.texts))

    async def _released(self, prompt: Prompt, turn: Turn, deadline: Deadline) -> AsyncGenerator[Batch, None]:
        """The model's events, through the output detectors where there are any."""
        async with aclosing(self._generator.generate(prompt, deadline)) as batches:
            if not turn.detectors.output:
                async for batch in batches:
                    yield batch
                return
            detectors = turn.detectors.output
            around = surroundings.of_turn(turn, prompt.sources)
            async with self._guardrails.watch(
                prompt.principal, detectors, deadline, around, turn.chunking
            ) as watch:
                guard = OutputGuard(
                    batches,
                    watch,
                    turn.blocked_message,
                    protected=any(each.action is not Action.REPORT for each in detectors),
                    chunked=turn.chunking not in (None, Chunking.MINIMAL),
                )
                async with aclosing(guard.events()) as events:
                    async for batch in events:
                        yield batch


async def _together(first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Runs both at once; where both fail, the first one's failure is the one that is raised."""
    tasks = asyncio.ensure_future(first), asyncio.ensure_future(second)
    try:
        return await tasks[0], await tasks[1]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _context(prepared: Prepared, prompt: Prompt, timeline: Timeline, known: tuple[DetectorInfo, ...]) -> Context:
    return Context(
        prepared.query,
        prepared.passages,
        prompt.messages,
        timeline.steps,
        prepared.left_out,
        prepared.notes,
        prepared.pictures,
        known,
    )


def _instead(turn: Turn, blocked: BlockedQuestion, timeline: Timeline) -> Batch:
    """The whole answer to a question that was stopped: nothing was found for it, and no model was asked."""
    return [
        Context("", (), (), timeline.steps),
        *blocked.detections,
        Delta(0, turn.blocked_message),
        Finish(0, "content_filter"),
        Usage(0, 0),
        Done(timeline.steps),
    ]


def _prompt(prepared: Prepared) -> Prompt:
    turn, passages = prepared.turn, prepared.passages
    messages = prompts.compose(turn, passages, prepared.pictures)
    return Prompt(
        turn.principal, turn.model, turn.question, messages, passages, turn.parameters_json, plain=turn.plain
    )
