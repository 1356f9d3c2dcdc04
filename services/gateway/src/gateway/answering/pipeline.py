"""How a turn is answered, step by step. Knows no protocol and no transport."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from servicekit.deadline import Deadline
from servicekit.errors import PermissionDenied

from gateway.answering import budget, prompts
from gateway.answering.checks import BlockedQuestion, Checks, reporting
from gateway.answering.context_selection import ContextSelection
from gateway.answering.conversation_window import ConversationWindow, Fit
from gateway.answering.detector_kinds import DetectorKinds
from gateway.answering.generation import Generation
from gateway.answering.model_searches import ModelSearches
from gateway.answering.notes import notes
from gateway.answering.page_pictures import PagePictures
from gateway.answering.query_rewriting import QueryRewriting
from gateway.answering.timeline import Timeline
from gateway.answering.together import beside, together
from gateway.domain import (
    Batch,
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
    Turn,
    Usage,
)
from gateway.ports.answering import Generator, Guardrails, Pictures, Prompt, Retriever


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
        judged: What the detectors left of the turn, before any of it was left out; None: `turn`.
    """

    turn: Turn
    selection: Selection | None = None
    detections: tuple[Detections, ...] = ()
    query: str = ""
    left_out: int = 0
    notes: tuple[Note, ...] = ()
    pictures: tuple[Picture, ...] = ()
    judged: Turn | None = None

    @property
    def passages(self) -> tuple[Passage, ...]:
        """What the answer rests on."""
        return self.selection.passages if self.selection else ()

    @property
    def passes_through(self) -> bool:
        """The model gets the request as it came: nothing was found or changed, and nothing is to be checked."""
        adds = self.passages or self.detections or self.turn.detectors.output or reporting(self.turn)
        original = self.turn.original
        return original.passthrough or bool(original.json and not adds)


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
        self._generation = Generation(generator, guardrails)
        self._checks = Checks(guardrails)
        self._kinds = DetectorKinds(guardrails)
        self._rewriting = QueryRewriting(generator, self._checks)
        self._context = ContextSelection(retriever, generator, node_tokens)
        self._window = ConversationWindow(generator, node_tokens)
        self._searches = ModelSearches(generator, self._generation, self._context, self._checks)
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
        searches = await self._searches.wanted(turn, deadline)
        found: list[Passage] = []
        async with beside(self._checks.reports(turn, timeline, deadline)) as reports:
            try:
                prepared = await self._prepare(turn, timeline, deadline, searches=searches)
                if reports.done():
                    await reports  # what is wrong with them spares the model
                prompt = _prompt(prepared)
                opening: list[Event] | None = []
                if not prepared.passes_through:
                    opening = [_context(prepared, prompt, timeline, known), *prepared.detections]
                if searches:
                    asked = replace(prepared.turn, retrieval=turn.retrieval)
                    events = self._searches.events(asked, found, timeline, deadline)
                else:
                    events = self._generation.events(prompt, prepared.turn, timeline, deadline)
                async with aclosing(events) as batches:
                    async for batch in batches:
                        if opening is None:
                            yield batch
                        else:
                            # The model waits for nobody who only reports; its first words do.
                            yield [*opening, *await reports, *batch]
                            opening = None
            except BlockedQuestion as blocked:
                yield await self._instead(turn, blocked, reports, timeline, deadline)
                return
        yield [Done(timeline.steps, Selection(tuple(found)) if searches else prepared.selection)]

    async def _admit(
        self, turn: Turn, timeline: Timeline, deadline: Deadline
    ) -> tuple[Turn, tuple[DetectorInfo, ...]]:
        """Refuses what cannot be answered, an unknown index before anything else; see `DetectorKinds.admit`."""
        original = turn.original
        if original.required_indexes:
            with timeline.step("find index"):
                await self._retriever.require(turn.principal, original.required_indexes, deadline)
        if original.objection is not None:
            raise original.objection
        if turn.only_default_model and turn.model:
            models = await self._generator.models(turn.principal, deadline)
            if not models or models[0].name != turn.model:
                raise PermissionDenied(
                    f"model: this front end does not offer the model {turn.model[:200]!r}.", field="model"
                )
        return await self._kinds.admit(turn, deadline)

    async def _prepare(self, turn: Turn, timeline: Timeline, deadline: Deadline, *, searches: bool) -> Prepared:
        """Checks, searches and selects: everything before the model is asked.

        Args:
            turn: What is asked.
            timeline: Notes what happens.
            deadline: When it must be over.
            searches: The model itself searches: nothing is searched before.
        """
        if turn.original.passthrough:
            return Prepared(turn)
        if searches:
            with timeline.step("find index"):
                await self._retriever.require(turn.principal, turn.retrieval.indexes, deadline)
            turn = replace(turn, retrieval=replace(turn.retrieval, indexes=()))
        checks, found = self._checks.of_input(turn, timeline, deadline), None
        if turn.retrieval.indexes:
            # Together: the search stays on the platform, nothing else happens before the verdict.
            search = self._context.search(turn, turn.query, timeline, deadline)
            (checked, found_in_input), found = await together(checks, search)
        else:
            checked, found_in_input = await checks
        query = await self._rewriting.query(checked, timeline, deadline)
        if query.text != turn.query:
            found = await self._context.search(checked, query.text, timeline, deadline)
        before = found.passages if found else ()
        passages, found_in_context = await self._checks.of_context(checked, before, timeline, deadline)
        fit = await self._fit(checked, found and replace(found, passages=passages), timeline, deadline)
        pictures, no_more = await self._pictures.of(checked, fit, timeline, deadline)
        return Prepared(
            turn=fit.turn,
            judged=checked,
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
        if turn.style is PromptStyle.SOURCES_AFTER_QUESTION or turn.truncates:
            return await self._window.fit(turn, found, timeline, deadline)
        if found is None:
            return Fit(turn, None)
        return Fit(*await self._context.select(turn, found, timeline, deadline))

    async def _instead(
        self,
        turn: Turn,
        blocked: BlockedQuestion,
        reports: "asyncio.Future[tuple[Detections, ...]]",
        timeline: Timeline,
        deadline: Deadline,
    ) -> Batch:
        """The whole answer to a question that was stopped.

        Raises:
            BlockedQuestion: Nothing is to be said.
        """
        found = blocked.detections
        try:
            found += await reports
        except BlockedQuestion as failed:
            found += () if failed is blocked else failed.detections
        said: list[Event] = [Context("", (), (), timeline.steps), *found]
        if turn.detection.blocked_is_empty:
            # What was asked is counted, and no model hears of it.
            counted = await self._generation.count(_composed(Prepared(turn)), [], deadline)
            return [*said, counted or Usage(0, 0), Done(timeline.steps)]
        if not turn.answers_blocked:
            raise blocked
        answer = Delta(0, turn.blocked_message), Finish(0, "content_filter"), Usage(0, 0)
        return [*said, *answer, Done(timeline.steps)]


def _prompt(prepared: Prepared) -> Prompt:
    """What the model is asked."""
    turn = prepared.turn
    if prepared.passes_through:
        return Prompt(turn.principal, turn.model, passthrough_json=turn.original.json)
    # Where detectors judge the answer, it is the model server's own, of which every element stays.
    judged = bool(turn.detectors.output)
    in_one_piece = turn.original.in_one_piece and judged
    return replace(_composed(prepared), in_one_piece=in_one_piece, unary=turn.unary and not judged)


def _composed(prepared: Prepared) -> Prompt:
    turn, passages = prepared.turn, prepared.passages
    messages = prompts.compose(turn, passages, prepared.pictures)
    return Prompt(
        turn.principal,
        turn.model,
        turn.query,
        messages,
        passages,
        turn.parameters_json,
        plain=turn.style is PromptStyle.PLAIN_TEXT,
    )


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
        prepared.judged or prepared.turn,
    )
