"""Generate an answer with a model, have the output detectors judge it, measure its time, and add token counts."""

import time
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing

import msgspec
import structlog
from opentelemetry import trace
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, Unavailable, UpstreamRejected

from gateway.answering import detection_context, error_text
from gateway.answering.citation_marks import names_of
from gateway.answering.follow_ups import split_follow_ups
from gateway.answering.guard import OutputGuard
from gateway.answering.timeline import Timeline, as_current_span
from gateway.domain import (
    Action,
    Batch,
    Chunk,
    Chunking,
    Completion,
    Delta,
    Detections,
    Finish,
    Start,
    Turn,
    Usage,
)
from gateway.domain.deltas import members_of
from gateway.ports.answering import Generator, Guardrails, Prompt

_log = structlog.get_logger(__name__)


class _Model(msgspec.Struct):
    model: str = ""


_model = msgspec.json.Decoder(_Model)


class Generation:
    """Generates answers.

    Args:
        generator: Calls models.
        guardrails: Judges the answers.
    """

    def __init__(self, generator: Generator, guardrails: Guardrails) -> None:
        self._generator = generator
        self._guardrails = guardrails

    async def events(
        self, prompt: Prompt, turn: Turn, timeline: Timeline, deadline: Deadline
    ) -> AsyncGenerator[Batch, None]:
        """Yield the model's events after the checks of the output detectors, with token counts at the end.

        Raises:
            Unavailable: The model sent no answer.
        """
        timeline.model = turn.model
        with timeline.streamed_step("generate") as step:
            begin = time.perf_counter()
            has_output = has_usage = False
            texts: defaultdict[int, list[str]] = defaultdict(list)
            generate = self._with_judged_errors if turn.detectors.output else self._judged_events
            async with aclosing(generate(step, prompt, turn, timeline, deadline)) as batches:
                async for generated in batches:
                    batch = _with_model_name(generated, turn.model_alias)
                    if not has_output and any(
                        isinstance(event, Delta | Finish | Chunk | Completion) for event in batch
                    ):
                        has_output = True
                        timeline.add("first token", time.perf_counter() - begin)
                    for event in batch:
                        if type(event) is Delta:
                            texts[event.choice].append(event.text)
                        elif type(event) is Chunk:
                            timeline.chunks += 1
                            timeline.raw_json = event.raw_json
                        elif type(event) is Usage:
                            has_usage = True
                            timeline.usage = event
                        elif type(event) is Start:
                            timeline.reported_model = timeline.reported_model or _model_of(event)
                        elif type(event) is Completion:
                            timeline.raw_json = event.raw_json
                        elif type(event) is Detections:
                            timeline.detections.append(event)
                    if batch:
                        yield batch
            if not has_output:
                raise Unavailable("The model sent no answer. Repeat the request.", retry_after=1)
            passes_through = prompt.passthrough_json and not turn.detectors.output
            if not (has_usage or passes_through or timeline.raw_json):
                # A blocked answer ends before the model reports the token counts.
                with as_current_span(step):
                    usage = await self.count(prompt, ["".join(pieces) for pieces in texts.values()], deadline)
                if usage is not None:
                    timeline.usage = usage
                    yield [usage]

    async def count(self, prompt: Prompt, texts: list[str], deadline: Deadline) -> Usage | None:
        """Return the token counts of a prompt and its answers, or None if the generator cannot count them."""
        try:
            counts = await self._generator.count_tokens(
                prompt.principal, prompt.model, texts, prompt.messages, deadline
            )
        except CausewayError as error:
            _log.warning("tokens were not counted", error=error.message)
            return None
        return Usage(counts.messages, sum(counts.texts))

    async def _with_judged_errors(
        self, step: trace.Span, prompt: Prompt, turn: Turn, timeline: Timeline, deadline: Deadline
    ) -> AsyncGenerator[Batch, None]:
        """Yield the model's events after the checks of the output detectors.

        Raises:
            UpstreamRejected: The model server refused the request. The error contains a text that clients may read.
        """
        try:
            async with aclosing(self._judged_events(step, prompt, turn, timeline, deadline)) as batches:
                async for batch in batches:
                    yield batch
        except UpstreamRejected as error:
            output = turn.detectors.output
            raise await error_text.cleared(error, self._guardrails, prompt.principal, output, deadline) from error

    async def _judged_events(
        self, step: trace.Span, prompt: Prompt, turn: Turn, timeline: Timeline, deadline: Deadline
    ) -> AsyncGenerator[Batch, None]:
        """Yield the model's events. If the turn has output detectors, they judge the events first."""
        recorded = _record_response(step, self._generator.generate(prompt, deadline), timeline)
        # This step removes the follow-up questions before the detectors judge the remaining text.
        async with aclosing(split_follow_ups(recorded) if turn.prompting.follow_ups else recorded) as batches:
            if not turn.detectors.output:
                async for batch in batches:
                    yield batch
                return
            detectors = turn.detectors.output
            context = detection_context.of_turn(turn, prompt.sources)
            async with AsyncExitStack() as stack:
                with as_current_span(step):
                    watch = await stack.enter_async_context(
                        self._guardrails.watch(
                            prompt.principal, detectors, deadline, context, turn.detection.chunking
                        )
                    )
                guard = OutputGuard(
                    batches,
                    watch,
                    turn.blocked_message,
                    protected=any(detector.action is not Action.REPORT for detector in detectors),
                    chunked=turn.detection.chunking not in (None, Chunking.MINIMAL),
                    names=names_of(prompt.sources),
                )
                async with aclosing(guard.events()) as events:
                    async for batch in events:
                        yield batch


def _model_of(start: Start) -> str:
    """Return the model's name, or an empty string if this event does not contain it."""
    try:
        return _model.decode(start.raw_json).model
    except ValueError:
        return ""


def _with_model_name(batch: Batch, name: str) -> Batch:
    """Return the batch with ``name`` as the name of the model; an empty ``name`` changes nothing."""
    if not name or not any(isinstance(event, Start | Completion) for event in batch):
        return batch
    return [
        type(event)(msgspec.json.encode(members_of(event.raw_json) | {"model": name}))
        if isinstance(event, Start | Completion)
        else event
        for event in batch
    ]


async def _record_response(
    step: trace.Span, batches: AsyncGenerator[Batch, None], timeline: Timeline
) -> AsyncGenerator[Batch, None]:
    """Yield the same batches, and record in the timeline that the model has responded.

    The call begins when this function requests the first batch. Therefore the span of the call is a child of the
    step in the trace.
    """
    async with aclosing(batches):
        with as_current_span(step):
            first = await anext(batches, None)
        if first is None:
            return
        timeline.model_responded = True
        yield first
        async for batch in batches:
            yield batch
