"""Run the steps that answer a turn, independently of protocols and transports."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from servicekit.deadline import Deadline
from servicekit.errors import PermissionDenied

from gateway.answering import budget, prompts
from gateway.answering.checks import BlockedQuestion, Checks, reporting
from gateway.answering.compaction import Compaction
from gateway.answering.concurrency import background_task, run_both
from gateway.answering.context_selection import ContextSelection
from gateway.answering.conversation_window import ConversationWindow, Fit
from gateway.answering.detector_kinds import DetectorKinds
from gateway.answering.generation import Generation
from gateway.answering.model_searches import ModelSearches
from gateway.answering.notes import notes
from gateway.answering.page_pictures import PagePictures
from gateway.answering.query_rewriting import QueryRewriting
from gateway.answering.timeline import Timeline
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
class PreparedTurn:
    """A turn that the gateway may send to a model: checked, redacted, fitted into the window, with its passages.

    Attributes:
        turn: The turn after checks and cuts.
        selection: The selected passages, or None without a search.
        detections: The findings in the question and in the passages.
        query: The search query, or empty without a search.
        left_out: The number of messages that do not fit the context window.
        notes: Notes for diagnosis.
        pictures: Pictures of pages, sent with the passages.
        checked_turn: The turn after the checks, before cuts. None means the same as `turn`.
    """

    turn: Turn
    selection: Selection | None = None
    detections: tuple[Detections, ...] = ()
    query: str = ""
    left_out: int = 0
    notes: tuple[Note, ...] = ()
    pictures: tuple[Picture, ...] = ()
    checked_turn: Turn | None = None

    @property
    def passages(self) -> tuple[Passage, ...]:
        """Return the passages for the answer."""
        return self.selection.passages if self.selection else ()

    @property
    def passes_through(self) -> bool:
        """Return whether the model gets the unchanged request, and the client the unchanged answer.

        Passages, findings, detectors of the output and detectors that only report on the input prevent this.
        """
        adds = self.passages or self.detections or self.turn.detectors.output or reporting(self.turn)
        original = self.turn.original
        return original.passthrough or bool(original.json and not adds)


class Pipeline:
    """Answers turns.

    Args:
        retriever: Finds passages.
        generator: Calls models.
        guardrails: Judges texts.
        pictures: Stores pictures of pages.
        node_tokens: The assumed tokens of a passage. They determine the number of passages to fetch, and the
            minimum token budget of the passages.
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
        self._compaction = Compaction(generator, self._generation)
        self._pictures = PagePictures(pictures)

    async def answer(
        self, turn: Turn, deadline: Deadline, timeline: Timeline | None = None
    ) -> AsyncGenerator[Batch, None]:
        """Yield the events of the answer, in non-empty batches, `Done` last.

        Closing the iterator cancels all work for the answer. The first batch follows the model's first output, so
        that an earlier error can still be an HTTP status.

        Args:
            turn: The turn.
            deadline: The time by which the answer must end.
            timeline: Records the steps, even of an answer that fails. None means a new timeline.

        Raises:
            BlockedQuestion: The detectors block the question, and the turn has no answer for a blocked question.
            CausewayError: Another step failed.
        """
        timeline = timeline or Timeline()
        turn, known = await self._admit(turn, timeline, deadline)
        searches = await self._searches.is_enabled(turn, deadline)
        found: list[Passage] = []

        def answer(current: Turn) -> AsyncGenerator[Batch, None]:
            if searches:
                with_indexes = replace(current, retrieval=turn.retrieval)
                return self._searches.events(with_indexes, found, timeline, deadline)
            prompted = prompt if current is prepared.turn else _prompt(replace(prepared, turn=current))
            return self._generation.events(prompted, current, timeline, deadline)

        async with background_task(self._checks.report_on_input(turn, timeline, deadline)) as reports:
            try:
                prepared = await self._prepare(turn, timeline, deadline, searches=searches)
                if reports.done():
                    await reports  # raises if a detector failed, so that the gateway calls no model
                prompt = _prompt(prepared)
                opening: list[Event] | None = []
                if not prepared.passes_through:
                    opening = [_context(prepared, prompt, timeline, known), *prepared.detections]
                if await self._compaction.is_needed(prepared.turn, deadline):
                    events = self._compaction.events(prepared.turn, answer, timeline, deadline)
                else:
                    events = answer(prepared.turn)
                async with aclosing(events) as batches:
                    async for batch in batches:
                        if opening is None:
                            yield batch
                        else:
                            # Detectors that only report delay the first output, but not the call to the model.
                            yield [*opening, *await reports, *batch]
                            opening = None
            except BlockedQuestion as blocked:
                yield await self._blocked_answer(turn, blocked, reports, timeline, deadline)
                return
        yield [Done(timeline.steps, Selection(tuple(found)) if searches else prepared.selection)]

    async def _admit(
        self, turn: Turn, timeline: Timeline, deadline: Deadline
    ) -> tuple[Turn, tuple[DetectorInfo, ...]]:
        """Return the turn if its request can be answered, and all known detectors; see `DetectorKinds.admit`.

        Raises:
            NotFound: An index or a detector does not exist. The check of the indexes is the first check.
            CausewayError: The request cannot be answered.
        """
        original = turn.original
        if original.required_indexes:
            with timeline.step("find index"):
                await self._retriever.check_indexes(turn.principal, original.required_indexes, deadline)
        if original.deferred_error is not None:
            raise original.deferred_error
        if turn.only_default_model and turn.model:
            models = await self._generator.models(turn.principal, deadline)
            if not models or models[0].name != turn.model:
                raise PermissionDenied(
                    f"model: this front end does not offer the model {turn.model[:200]!r}.", field="model"
                )
        return await self._kinds.admit(turn, deadline)

    async def _prepare(self, turn: Turn, timeline: Timeline, deadline: Deadline, *, searches: bool) -> PreparedTurn:
        """Run the steps before the model: check, search and select.

        Args:
            turn: The turn.
            timeline: Records the steps.
            deadline: The time by which the answer must end.
            searches: Whether the model itself searches. Then this function does not search.
        """
        if turn.original.passthrough:
            return PreparedTurn(turn)
        if searches:
            with timeline.step("find index"):
                await self._retriever.check_indexes(turn.principal, turn.retrieval.indexes, deadline)
            turn = replace(turn, retrieval=replace(turn.retrieval, indexes=()))
        checks, found = self._checks.check_input(turn, timeline, deadline), None
        if turn.retrieval.indexes:
            # The search runs concurrently. Before the verdict, only the retriever and its embedding server and
            # reranker receive the query. All other steps wait for the verdict.
            search = self._context.search(turn, turn.query, timeline, deadline)
            (checked, found_in_input), found = await run_both(checks, search)
        else:
            checked, found_in_input = await checks
        query = await self._rewriting.query(checked, timeline, deadline)
        if query.text != turn.query:
            found = await self._context.search(checked, query.text, timeline, deadline)
        before = found.passages if found else ()
        passages, found_in_context = await self._checks.check_context(checked, before, timeline, deadline)
        fit = await self._fit(checked, found and replace(found, passages=passages), timeline, deadline)
        pictures, pictures_note = await self._pictures.load(checked, fit, timeline, deadline)
        return PreparedTurn(
            turn=fit.turn,
            checked_turn=checked,
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
                pictures=pictures_note,
            ),
        )

    async def _fit(self, turn: Turn, found: Selection | None, timeline: Timeline, deadline: Deadline) -> Fit:
        """Fit a conversation and its passages into the context window."""
        if turn.style is PromptStyle.SOURCES_AFTER_QUESTION or turn.truncates:
            return await self._window.fit(turn, found, timeline, deadline)
        if found is None:
            return Fit(turn, None)
        return Fit(*await self._context.select(turn, found, timeline, deadline))

    async def _blocked_answer(
        self,
        turn: Turn,
        blocked: BlockedQuestion,
        reports: "asyncio.Future[tuple[Detections, ...]]",
        timeline: Timeline,
        deadline: Deadline,
    ) -> Batch:
        """Return the whole answer to a blocked question.

        Raises:
            BlockedQuestion: The turn has no answer for a blocked question.
        """
        found = blocked.detections
        try:
            found += await reports
        except BlockedQuestion as failed:
            found += () if failed is blocked else failed.detections
        events: list[Event] = [Context("", (), (), timeline.steps), *found]
        if turn.detection.blocked_is_empty:
            # The generator counts the question's tokens. No model receives the question.
            counted = await self._generation.count(_composed(PreparedTurn(turn)), [], deadline)
            return [*events, counted or Usage(0, 0), Done(timeline.steps)]
        if not turn.answers_blocked:
            raise blocked
        answer = Delta(0, turn.blocked_message), Finish(0, "content_filter"), Usage(0, 0)
        return [*events, *answer, Done(timeline.steps)]


def _prompt(prepared: PreparedTurn) -> Prompt:
    """Return the request to the model."""
    turn = prepared.turn
    if prepared.passes_through:
        return Prompt(turn.principal, turn.model, passthrough_json=turn.original.json)
    # If detectors judge an answer that the client requested in one piece, the generator calls the model server
    # without streaming. The client then receives all members of the model server's response.
    has_detectors = bool(turn.detectors.output)
    in_one_piece = turn.original.in_one_piece and has_detectors
    return replace(_composed(prepared), in_one_piece=in_one_piece, unary=turn.unary and not has_detectors)


def _composed(prepared: PreparedTurn) -> Prompt:
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


def _context(
    prepared: PreparedTurn, prompt: Prompt, timeline: Timeline, known: tuple[DetectorInfo, ...]
) -> Context:
    return Context(
        prepared.query,
        prepared.passages,
        prompt.messages,
        timeline.steps,
        prepared.left_out,
        prepared.notes,
        prepared.pictures,
        known,
        prepared.checked_turn or prepared.turn,
    )
