"""Compact a conversation: a model writes a summary, which replaces the earlier messages."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import msgspec
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest, Unavailable

from gateway.answering import prompts
from gateway.answering.generation import Generation
from gateway.answering.timeline import Timeline
from gateway.answering.usage_sums import add_usage
from gateway.domain import (
    Batch,
    CompactionBegun,
    CompactionDone,
    Delta,
    Detections,
    Event,
    Finish,
    Message,
    Start,
    Turn,
    Usage,
)
from gateway.ports.answering import Generator, Prompt

WINDOW_SHARE = 0.8
"""The share of the context window above which a conversation is summarised, if the request sets no threshold."""

_ANSWER_PARAMETERS = (
    *("tools", "tool_choice", "parallel_tool_calls", "response_format", "max_completion_tokens", "logprobs"),
    *("top_logprobs", "stop"),
)
"""Parameters that apply to the answer and not to a summary."""

_object = msgspec.json.Decoder(dict[str, Any])
_encode = msgspec.json.encode


class Compaction:
    """Summarises conversations with a model.

    Args:
        generator: Counts tokens.
        generation: Generates summaries.
    """

    def __init__(self, generator: Generator, generation: Generation) -> None:
        self._generator, self._generation = generator, generation

    async def is_needed(self, turn: Turn, deadline: Deadline) -> bool:
        """Return whether the conversation of a turn must be summarised.

        Raises:
            InvalidRequest: The turn requests only a summary, and its model cannot follow instructions.
        """
        options = turn.compaction
        if options is None or not (options.summary_only or _replaceable_messages(turn)):
            return False
        tools = [turn.original.tools_json.decode()] if turn.original.tools_json else []
        messages = prompts.compose(turn, ())
        counts = await self._generator.count_tokens(turn.principal, turn.model, tools, messages, deadline)
        if counts.only_quotes:
            if options.summary_only:
                raise InvalidRequest(
                    "model: this model only quotes and cannot summarise. Name another model.", field="model"
                )
            return False
        threshold = int(counts.context_window * WINDOW_SHARE) if options.threshold is None else options.threshold
        has_threshold = options.threshold is not None or bool(counts.context_window)
        return options.summary_only or (has_threshold and counts.messages + sum(counts.texts) > threshold)

    async def events(
        self,
        turn: Turn,
        answer: Callable[[Turn], AsyncGenerator[Batch, None]],
        timeline: Timeline,
        deadline: Deadline,
    ) -> AsyncGenerator[Batch, None]:
        """Yield the events of a summary, then the events of the answer to the shorter conversation.

        If the turn requests only a summary, no answer follows. The token counts of the answer include those of the
        summary. If a detector stops the summary, the answer uses the whole conversation.

        Args:
            turn: The turn, after the detectors have judged it.
            answer: Yields the events of the answer to a turn.
            timeline: Records the steps.
            deadline: The time by which the work must end.

        Raises:
            Unavailable: The model wrote no summary.
        """
        pieces: list[str] = []
        finish, summary_usage = Finish(0, "stop"), Usage(0, 0)
        begun, summary_only = False, turn.compaction is not None and turn.compaction.summary_only
        summary_turn = _summary_request(turn)
        async with aclosing(
            self._generation.events(_prompt(summary_turn), summary_turn, timeline, deadline)
        ) as batches:
            async for batch in batches:
                emitted: list[Event] = [] if begun else [CompactionBegun()]
                begun = True
                for event in batch:
                    if type(event) is Delta:
                        pieces += [event.text] if event.choice == 0 else []
                    elif type(event) is Finish:
                        finish = event
                    elif type(event) is Usage:
                        summary_usage = event
                    elif type(event) in (Start, Detections):
                        emitted.append(event)
                if emitted:
                    yield emitted
        summary = "".join(pieces).strip()
        if finish.reason != "content_filter":
            if not summary:
                raise Unavailable("The model wrote no summary. Repeat the request.", retry_after=1)
            yield [CompactionDone(summary, summary_only)]
            turn = compacted(turn, summary)
        if summary_only:
            yield [finish, summary_usage]
            return
        async with aclosing(answer(turn)) as batches:
            async for batch in batches:
                counted = [add_usage(summary_usage, event) if type(event) is Usage else event for event in batch]
                timeline.usage = next((event for event in counted if type(event) is Usage), timeline.usage)
                yield counted


def _prompt(turn: Turn) -> Prompt:
    return Prompt(turn.principal, turn.model, "", prompts.compose(turn, ()), (), turn.parameters_json)


def compacted(turn: Turn, summary: str) -> Turn:
    """Return the turn with a summary in place of the messages before the question, including an earlier summary.

    Other system messages stay.
    """
    question_start = len(turn.history) - len(_question_messages(turn))
    instructions = tuple(
        message
        for message in turn.history[:question_start]
        if message.role == "system" and not prompts.is_summary(message)
    )
    summary_message = Message("system", prompts.summary(summary))
    return replace(turn, history=(*instructions, summary_message, *turn.history[question_start:]))


def _question_messages(turn: Turn) -> tuple[Message, ...]:
    """Return the messages at the end of the history that belong to the question.

    If the turn has a question, they follow the latest answer or tool result. Otherwise they begin with the latest
    user message. If the history has no message of these kinds, the whole history belongs to the question.
    """
    boundary_roles = ("assistant", "tool") if turn.question else ("user",)
    for position in range(len(turn.history) - 1, -1, -1):
        if turn.history[position].role in boundary_roles:
            return turn.history[position + (1 if turn.question else 0) :]
    return turn.history


def _replaceable_messages(turn: Turn) -> tuple[Message, ...]:
    """Return the messages before the question, except system messages. Only these messages can need a summary."""
    before = turn.history[: len(turn.history) - len(_question_messages(turn))]
    return tuple(message for message in before if message.role != "system")


def _summary_request(turn: Turn) -> Turn:
    """Return the turn that requests a summary of a turn's conversation."""
    question = (Message("user", turn.question, b"", turn.original.question_extra_json),) if turn.question else ()
    parameters = _object.decode(turn.parameters_json)
    members = {name: value for name, value in parameters.items() if name not in _ANSWER_PARAMETERS}
    return replace(
        turn,
        question=prompts.SUMMARISE,
        history=(*turn.history, *question),
        parameters_json=_encode(members),
    )
