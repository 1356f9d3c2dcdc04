"""Collects an answer from its events, and renders the members that answers of several dialects have.

These members are the token counts, the findings of detectors and the warnings.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from servicekit.errors import Unavailable

from gateway.dialects.problem import one_line
from gateway.domain import (
    Action,
    Batch,
    Chunk,
    Completion,
    Context,
    Delta,
    Detections,
    DetectorFailure,
    Detectors,
    Direction,
    Done,
    Finding,
    Finish,
    FollowUps,
    Start,
    Step,
    Usage,
)
from gateway.domain.deltas import Part, members_of, merge, parts_of

ITEM_NAMES = {
    Direction.INPUT: "message_index",
    Direction.CONTEXT: "passage_index",
    Direction.OUTPUT: "choice_index",
}
"""For each direction, the name of the member that contains the position of the judged text."""


@dataclass(slots=True)
class Choice:
    """One choice of an answer.

    Attributes:
        texts: The pieces of the content.
        delta: The other members of the message in OpenAI's format, merged from their pieces.
        members: The members of the choice next to the message (log probabilities), merged from their pieces.
        finish_reason: The reason why the model stopped, or empty if it is not known.
    """

    texts: list[str] = field(default_factory=list)
    delta: dict[str, Any] = field(default_factory=dict)
    members: dict[str, Any] = field(default_factory=dict)
    finish_reason: str = ""

    @property
    def text(self) -> str:
        """Return the content."""
        return "".join(self.texts)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Return the parts other than the content: complete tool calls, reasoning, refusal, annotations."""
        return parts_of(self.delta)


@dataclass(slots=True)
class Answer:
    """An answer that is collected from its events.

    Attributes:
        context: The result of the retrieval, or None before its event.
        start: The members of the model server's answer other than the choices, for example ``id`` and ``model``.
        choices: The choices by index.
        detections: The findings of the detectors.
        follow_ups: The follow-up questions.
        usage: The token counts, or None if they are not known.
        completion: The answer as the model server sent it in one piece, or empty if the model server sent events.
        steps: The steps with their durations, after the last event.
    """

    context: Context | None = None
    start: dict[str, Any] = field(default_factory=dict)
    choices: dict[int, Choice] = field(default_factory=dict)
    detections: list[Detections] = field(default_factory=list)
    follow_ups: tuple[str, ...] = ()
    usage: Usage | None = None
    completion: bytes = b""
    steps: tuple[Step, ...] = ()

    def add_events(self, batch: Batch) -> None:
        """Add a batch of events.

        Raises:
            Unavailable: The model server sent pieces that cannot be read or merged, or streamed an answer that was
                requested in one piece.
        """
        for event in batch:
            match event:
                case Delta():
                    choice = self._choice(event.choice)
                    if event.text:
                        choice.texts.append(event.text)
                    if event.delta_json:
                        merge(choice.delta, members_of(event.delta_json))
                    if event.choice_json:
                        merge(choice.members, members_of(event.choice_json))
                case Finish():
                    choice = self._choice(event.choice)
                    choice.finish_reason = event.reason
                    if event.choice_json:
                        merge(choice.members, members_of(event.choice_json))
                case Context():
                    self.context = event
                case Start():
                    self.start |= members_of(event.raw_json)
                case Detections():
                    self.detections.append(event)
                case FollowUps():
                    self.follow_ups = event.questions
                case Usage():
                    self.usage = event
                case Completion():
                    self.completion = event.raw_json
                case Done():
                    self.steps = event.steps
                case Chunk():
                    raise Unavailable("The model server streamed an answer that was requested in one piece.")

    def _choice(self, index: int) -> Choice:
        choice = self.choices.get(index)
        if choice is None:
            choice = self.choices[index] = Choice()
        return choice


def usage_object(usage: Usage | None) -> Any:
    """Return the token counts in OpenAI's format, or None if they are not known.

    The counts remain unchanged if the model server sent them.
    """
    if usage is None:
        return None
    if usage.raw_json:
        return msgspec.Raw(one_line(usage.raw_json))
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def detection_results(event: Detections) -> list[dict[str, Any]]:
    """Return the findings that the client may see, in the format of ADR 005 of the guardrails orchestrator.

    Findings with a span come first, sorted by their start.
    """
    visible = [finding for finding in event.findings if not finding.withheld]
    ordered = sorted(visible, key=lambda finding: (finding.start is None, finding.start or 0))
    return [_result(finding, event.direction) for finding in ordered]


def _result(finding: Finding, direction: Direction) -> dict[str, Any]:
    result: dict[str, Any] = {}
    # The client may see its own text in a finding, but not the text that a detector removed from a passage or from
    # an answer.
    shows_text = finding.action is Action.REPORT or direction is Direction.INPUT
    if finding.start is not None:
        text = finding.text if shows_text else finding.replacement
        result = {"start": finding.start, "end": finding.end, "text": text}
    result |= {
        "detection_type": finding.detection_type,
        "detection": finding.detection,
        "detector_id": finding.detector_id,
        "score": finding.score,
    }
    if finding.extra_json and shows_text:
        result |= members_of(finding.extra_json)
    return result


def directions_of(detectors: Detectors) -> tuple[Direction, ...]:
    """Return the directions that have detectors."""
    return tuple(direction for direction in Direction if getattr(detectors, direction.value))


def detections_block(detections: Sequence[Detections], directions: Sequence[Direction]) -> dict[str, Any]:
    """Return the ``detections`` of an answer, with a key for each requested direction."""
    block: dict[str, Any] = {}
    for direction in directions:
        by_item: dict[int, list[dict[str, Any]]] = {}
        for event in detections:
            if event.direction is direction and (results := detection_results(event)):
                by_item.setdefault(event.item, []).extend(results)
        block[direction.value] = [
            {ITEM_NAMES[direction]: index, "results": sorted(results, key=_position)}
            for index, results in sorted(by_item.items())
        ]
    return block


def _position(result: dict[str, Any]) -> tuple[bool, int]:
    return "start" not in result, result.get("start", 0)


def warnings_of(detections: Sequence[Detections]) -> list[dict[str, str]]:
    """Return the warnings of an answer: findings in the output, failed detectors, and omitted members."""
    warnings = []
    if any(event.direction is Direction.OUTPUT and event.findings for event in detections):
        warnings.append({"type": "UNSUITABLE_OUTPUT", "message": "Unsuitable output detected."})
    for event in detections:
        warnings += map(failure_warning, event.failures)
        warnings += map(left_out_warning, event.omitted_paths)
    return warnings


def left_out_warning(path: str) -> dict[str, str]:
    """Return the warning that a member of an answer was omitted, because no detector can judge it."""
    return {"type": "UNJUDGED_OUTPUT", "message": f"{path} was omitted: no detector can judge it."}


def failure_warning(failure: DetectorFailure) -> dict[str, str]:
    """Return the warning that a detector failed, or was not called."""
    kind = "DETECTOR_NOT_ASKED" if failure.not_asked else "DETECTOR_ERROR"
    return {"type": kind, "message": f"{failure.detector_id}: {failure.message}"}
