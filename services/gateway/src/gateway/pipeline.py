"""How a turn is answered, step by step. Knows no protocol and no transport."""

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from servicekit.deadline import Deadline
from servicekit.errors import Blocked, InvalidRequest

from gateway import budget, prompts
from gateway.domain import (
    Action,
    Batch,
    Context,
    Delta,
    Detections,
    Detector,
    Direction,
    Done,
    Event,
    Message,
    Passage,
    Turn,
    Verdict,
)
from gateway.guard import OutputGuard
from gateway.ports import Generator, Guardrails, Prompt, Retriever
from gateway.timeline import Timeline

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Checked:
    """A turn after its input detectors: redacted where they say so, with what they found."""

    turn: Turn
    detections: tuple[Detections, ...] = ()


class Pipeline:
    """Answers turns.

    Args:
        retriever: Finds passages.
        generator: Asks models.
        guardrails: Judges texts.
        blocked_message: Stands for an answer that the detectors stopped.
    """

    def __init__(
        self, retriever: Retriever, generator: Generator, guardrails: Guardrails, *, blocked_message: str
    ) -> None:
        self._retriever = retriever
        self._generator = generator
        self._guardrails = guardrails
        self._blocked_message = blocked_message

    async def answer(self, turn: Turn, deadline: Deadline) -> AsyncGenerator[Batch, None]:
        """The events of the answer. Closing the iterator stops everything that runs for it.

        Nothing is yielded before the model has begun, so that what fails until then can still be a status.

        Raises:
            CausewayError: Whatever any step raises; `Blocked` where the detectors stop the question.
        """
        if turn.passthrough:
            async with aclosing(self._pass_through(turn, deadline)) as events:
                async for batch in events:
                    yield batch
            return

        timeline = Timeline()
        checked, passages = await _together(
            self._check_input(turn, timeline, deadline), self._retrieve(turn, timeline, deadline)
        )
        if checked.turn.question != turn.question:
            passages = await self._retrieve(checked.turn, timeline, deadline)
        turn = checked.turn
        passages, context_detections = await self._check_context(turn, passages, timeline, deadline)
        passages = await self._fit(turn, passages, timeline, deadline)
        nothing_to_say = not (passages or checked.detections or context_detections or turn.detectors.output)
        if nothing_to_say and turn.original_json:
            # Nothing relevant was found, nothing was changed: the request goes to the model as it came.
            async with aclosing(self._pass_through(turn, deadline)) as events:
                async for batch in events:
                    yield batch
            return

        messages = prompts.compose(turn, passages)
        opening: list[Event] = [
            Context(turn.question if turn.retrieval.indexes else "", passages, messages, timeline.steps),
            *checked.detections,
            *context_detections,
        ]
        async with aclosing(self._generate(turn, messages, passages, timeline, deadline)) as events:
            async for batch in events:
                yield [*opening, *batch] if opening else batch
                opening = []
        yield [*opening, Done(timeline.steps)]

    async def _pass_through(self, turn: Turn, deadline: Deadline) -> AsyncGenerator[Batch, None]:
        prompt = Prompt(turn.principal, turn.model, passthrough_json=turn.original_json)
        async with aclosing(self._generator.generate(prompt, deadline)) as batches:
            async for batch in batches:
                yield batch

    async def _check_input(self, turn: Turn, timeline: Timeline, deadline: Deadline) -> Checked:
        """The user's words, old and new, before the model sees them; only what is new can stop the request."""
        if not turn.detectors.input:
            return Checked(turn)
        spoken = [at for at, message in enumerate(turn.history) if message.role in ("user", "tool")]
        texts = [turn.history[at].text for at in spoken] + [turn.question]
        with timeline.step("check input"):
            verdicts, failures = await self._guardrails.detect(
                turn.principal, Direction.INPUT, turn.detectors.input, texts, deadline
            )
        if verdicts[-1].action is Action.BLOCK:
            raise Blocked(f"The question was stopped by the guardrails: {_found(verdicts[-1])}.", field="messages")
        history = list(turn.history)
        for at, verdict in zip(spoken, verdicts[:-1], strict=True):
            history[at] = replace(history[at], text=_text_after(verdict, history[at].text))
        question = _text_after(verdicts[-1], turn.question)
        detections = [
            Detections(Direction.INPUT, item, verdict.findings)
            for item, verdict in zip([*spoken, len(turn.history)], verdicts, strict=True)
            if verdict.findings
        ]
        if failures:
            detections.append(Detections(Direction.INPUT, len(turn.history), (), failures))
        return Checked(replace(turn, history=tuple(history), question=question), tuple(detections))

    async def _retrieve(self, turn: Turn, timeline: Timeline, deadline: Deadline) -> tuple[Passage, ...]:
        if not turn.retrieval.indexes:
            return ()
        top = turn.retrieval.top
        if top is None:
            counts = await self._generator.count_tokens(
                turn.principal, turn.model, (), prompts.compose(turn, ()), deadline
            )
            top = budget.candidates(counts.context_window, counts.messages)
        with timeline.step("retrieve"):
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
        detections = [
            Detections(Direction.CONTEXT, item, verdict.findings)
            for item, verdict in enumerate(verdicts)
            if verdict.findings
        ]
        if failures:
            detections.append(Detections(Direction.CONTEXT, 0, (), failures))
        return kept, tuple(detections)

    async def _fit(
        self, turn: Turn, passages: tuple[Passage, ...], timeline: Timeline, deadline: Deadline
    ) -> tuple[Passage, ...]:
        """The passages that the model's context window has room for."""
        if not passages:
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
        self,
        turn: Turn,
        messages: tuple[Message, ...],
        passages: tuple[Passage, ...],
        timeline: Timeline,
        deadline: Deadline,
    ) -> AsyncGenerator[Batch, None]:
        prompt = Prompt(turn.principal, turn.model, turn.question, messages, passages, turn.parameters_json)
        begin = time.perf_counter()
        spoke = False
        async with aclosing(self._released(turn, prompt, deadline)) as batches:
            async for batch in batches:
                if not spoke and any(isinstance(event, Delta) for event in batch):
                    spoke = True
                    timeline.add("first token", time.perf_counter() - begin)
                yield batch
        timeline.add("generate", time.perf_counter() - begin)

    async def _released(self, turn: Turn, prompt: Prompt, deadline: Deadline) -> AsyncGenerator[Batch, None]:
        """The model's events as they may leave: through the output detectors, where there are any."""
        detectors: tuple[Detector, ...] = turn.detectors.output
        async with aclosing(self._generator.generate(prompt, deadline)) as batches:
            if not detectors:
                async for batch in batches:
                    yield batch
                return
            async with self._guardrails.watch(turn.principal, detectors, deadline) as watch:
                guard = OutputGuard(batches, watch, self._blocked_message)
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


def _text_after(verdict: Verdict, text: str) -> str:
    return verdict.redacted_text if verdict.action is Action.REDACT else text


def _found(verdict: Verdict) -> str:
    names = dict.fromkeys(f.detection or f.detector_id for f in verdict.findings if f.action is Action.BLOCK)
    return ", ".join(names)
