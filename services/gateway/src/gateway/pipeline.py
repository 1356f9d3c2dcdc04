"""How a turn is answered, step by step. Knows no protocol and no transport."""

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import structlog
from servicekit.deadline import Deadline
from servicekit.errors import Blocked, CausewayError, InvalidRequest, Unavailable

from gateway import budget, prompts
from gateway.domain import (
    Action,
    Batch,
    Chunk,
    Completion,
    Context,
    Delta,
    Detections,
    DetectorFailure,
    Direction,
    Done,
    Event,
    Finish,
    Passage,
    Turn,
    Usage,
    Verdict,
)
from gateway.guard import OutputGuard
from gateway.ports import Generator, Guardrails, Prompt, Retriever
from gateway.timeline import Timeline

A = TypeVar("A")
B = TypeVar("B")
_log = structlog.get_logger(__name__)
_CHECKED = ("user", "tool", "function")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A turn that may go to a model: checked and redacted, with the passages that it rests on."""

    turn: Turn
    passages: tuple[Passage, ...]
    detections: tuple[Detections, ...]

    @property
    def adds_nothing(self) -> bool:
        """Nothing was found, changed or is to be checked: the model may as well get the request as it came."""
        needed = self.passages or self.detections or self.turn.detectors.output
        return bool(self.turn.original_json) and not needed


class Pipeline:
    """Answers turns.

    Args:
        retriever: Finds passages.
        generator: Asks models.
        guardrails: Judges texts.
    """

    def __init__(self, retriever: Retriever, generator: Generator, guardrails: Guardrails) -> None:
        self._retriever = retriever
        self._generator = generator
        self._guardrails = guardrails

    async def answer(self, turn: Turn, deadline: Deadline) -> AsyncGenerator[Batch, None]:
        """The events of the answer, in batches of one at least, `Done` last.

        Closing the iterator stops everything that runs for it. Nothing is yielded before the model has begun, so
        that what fails until then can still be a status.

        Raises:
            CausewayError: Whatever any step raises; `Blocked` where the detectors stop the question.
        """
        timeline = Timeline()
        prompt = Prompt(turn.principal, turn.model, passthrough_json=turn.original_json)
        opening: list[Event] = []
        if not turn.passthrough:
            prepared = await self._prepare(turn, timeline, deadline)
            turn = prepared.turn
            if not prepared.adds_nothing:
                prompt = _prompt(prepared)
                query = turn.question if turn.retrieval.indexes else ""
                opening = [Context(query, prepared.passages, prompt.messages, timeline.steps), *prepared.detections]
        async with aclosing(self._generate(prompt, turn, timeline, deadline)) as events:
            async for batch in events:
                yield [*opening, *batch] if opening else batch
                opening = []
        yield [Done(timeline.steps)]

    async def _prepare(self, turn: Turn, timeline: Timeline, deadline: Deadline) -> Prepared:
        (checked, found_in_input), passages = await _together(
            self._check_input(turn, timeline, deadline), self._retrieve(turn, timeline, deadline)
        )
        if checked.question != turn.question:
            passages = await self._retrieve(checked, timeline, deadline)
        passages, found_in_context = await self._check_context(checked, passages, timeline, deadline)
        passages = await self._fit(checked, passages, timeline, deadline)
        return Prepared(checked, passages, found_in_input + found_in_context)

    async def _check_input(
        self, turn: Turn, timeline: Timeline, deadline: Deadline
    ) -> tuple[Turn, tuple[Detections, ...]]:
        """The turn with its words as the detectors leave them, before the model sees any of them.

        Users and tools are checked, however long ago they spoke, but only what came since the latest answer stops
        the request: one old message does not close a conversation for ever.
        """
        if not turn.detectors.input:
            return turn, ()
        spoken = [at for at, message in enumerate(turn.history) if message.role in _CHECKED]
        texts = [turn.history[at].text for at in spoken]
        if turn.question:
            spoken.append(len(turn.history))
            texts.append(turn.question)
        if not texts:
            return turn, ()
        with timeline.step("check input"):
            verdicts, failures = await self._guardrails.detect(
                turn.principal, Direction.INPUT, turn.detectors.input, texts, deadline
            )
        answered = max((at for at, message in enumerate(turn.history) if message.role == "assistant"), default=-1)
        history, question = list(turn.history), turn.question
        for at, verdict in zip(spoken, verdicts, strict=True):
            if verdict.action is Action.BLOCK and at > answered:
                raise Blocked(
                    f"The question was stopped by the guardrails: {_reason(verdict, failures)}.", field="messages"
                )
            if at == len(history):
                question = _text_after(verdict, question)
            else:
                history[at] = replace(history[at], text=_text_after(verdict, history[at].text))
        checked = replace(turn, history=tuple(history), question=question)
        return checked, _detections(Direction.INPUT, spoken, verdicts, failures)

    async def _retrieve(self, turn: Turn, timeline: Timeline, deadline: Deadline) -> tuple[Passage, ...]:
        if not turn.retrieval.indexes:
            return ()
        with timeline.step("retrieve"):
            top = turn.retrieval.top
            if top is None:
                counts = await self._generator.count_tokens(
                    turn.principal, turn.model, (), prompts.compose(turn, ()), deadline
                )
                top = budget.candidates(counts.context_window, counts.messages)
            return await self._retriever.retrieve(turn.principal, turn.retrieval, turn.question, top, deadline)

    async def _check_context(
        self, turn: Turn, passages: tuple[Passage, ...], timeline: Timeline, deadline: Deadline
    ) -> tuple[tuple[Passage, ...], tuple[Detections, ...]]:
        """The passages, less those that a detector stops: documents can carry instructions for the model."""
        if not turn.detectors.context or not passages:
            return passages, ()
        with timeline.step("check context"):
            verdicts, failures = await self._guardrails.detect(
                turn.principal,
                Direction.CONTEXT,
                turn.detectors.context,
                [passage.text for passage in passages],
                deadline,
            )
        kept = tuple(
            replace(passage, text=_text_after(verdict, passage.text))
            for passage, verdict in zip(passages, verdicts, strict=True)
            if verdict.action is not Action.BLOCK
        )
        return kept, _detections(Direction.CONTEXT, range(len(passages)), verdicts, failures)

    async def _fit(
        self, turn: Turn, passages: tuple[Passage, ...], timeline: Timeline, deadline: Deadline
    ) -> tuple[Passage, ...]:
        """The passages that the model's context window has room for.

        Raises:
            InvalidRequest: It has no room even for the conversation.
        """
        if not turn.retrieval.indexes:
            return passages
        with timeline.step("budget"):
            counts = await self._generator.count_tokens(
                turn.principal,
                turn.model,
                [prompts.data_point(passage) for passage in passages],
                prompts.compose(turn, ()),
                deadline,
            )
        if not counts.context_window:
            return passages
        if counts.messages > counts.context_window:
            raise InvalidRequest("Prompt length exceeds context window.", field="messages")
        room = budget.context_tokens(
            counts.context_window, counts.messages, turn.max_tokens, turn.retrieval.context_token_ratio
        )
        return budget.select(passages, counts.texts, room)

    async def _generate(
        self, prompt: Prompt, turn: Turn, timeline: Timeline, deadline: Deadline
    ) -> AsyncGenerator[Batch, None]:
        """The model's events as they may leave: timed, and with numbers of tokens at the end.

        Raises:
            Unavailable: The model said nothing at all.
        """
        begin = time.perf_counter()
        spoke = counted = False
        texts: list[str] = []
        async with aclosing(self._released(prompt, turn, deadline)) as batches:
            async for batch in batches:
                if not spoke and any(isinstance(event, Delta | Finish | Chunk | Completion) for event in batch):
                    spoke = True
                    timeline.add("first token", time.perf_counter() - begin)
                for event in batch:
                    if type(event) is Delta:
                        texts.append(event.text)
                    elif type(event) is Usage:
                        counted = True
                if batch:
                    yield batch
        if not spoke:
            raise Unavailable("The model sent no answer.", retry_after=1)
        if not (counted or prompt.passthrough_json):
            # An answer that was stopped ends before the model says its numbers.
            usage = await self._count(prompt, "".join(texts), deadline)
            if usage is not None:
                yield [usage]
        timeline.add("generate", time.perf_counter() - begin)

    async def _count(self, prompt: Prompt, text: str, deadline: Deadline) -> Usage | None:
        try:
            counts = await self._generator.count_tokens(
                prompt.principal, prompt.model, [text], prompt.messages, deadline
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
            async with self._guardrails.watch(prompt.principal, turn.detectors.output, deadline) as watch:
                guard = OutputGuard(batches, watch, turn.blocked_message)
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


def _prompt(prepared: Prepared) -> Prompt:
    turn, passages = prepared.turn, prepared.passages
    messages = prompts.compose(turn, passages)
    return Prompt(turn.principal, turn.model, turn.question, messages, passages, turn.parameters_json)


def _text_after(verdict: Verdict, text: str) -> str:
    return verdict.redacted_text if verdict.action is Action.REDACT else text


def _detections(
    direction: Direction, items: Sequence[int], verdicts: Sequence[Verdict], failures: tuple[DetectorFailure, ...]
) -> tuple[Detections, ...]:
    found = [
        Detections(direction, item, verdict.findings)
        for item, verdict in zip(items, verdicts, strict=True)
        if verdict.findings
    ]
    if failures:
        found.append(Detections(direction, items[-1], (), failures))
    return tuple(found)


def _reason(verdict: Verdict, failures: tuple[DetectorFailure, ...]) -> str:
    names = [f.detection or f.detector_id for f in verdict.findings if f.action is Action.BLOCK]
    return ", ".join(dict.fromkeys(names or [f"the detector {failure.detector_id} failed" for failure in failures]))
