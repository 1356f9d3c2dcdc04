"""Events gathered into one answer, for the routes that answer in one piece."""

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


@dataclass(slots=True)
class Choice:
    """One of the answers that were asked for.

    Attributes:
        delta: What was said beside the content, put together from its pieces; members as of OpenAI's messages.
        members: What stands beside the message (log probabilities), put together likewise.
    """

    texts: list[str] = field(default_factory=list)
    delta: dict[str, Any] = field(default_factory=dict)
    members: dict[str, Any] = field(default_factory=dict)
    finish_reason: str = ""

    @property
    def text(self) -> str:
        """Its content."""
        return "".join(self.texts)

    @property
    def parts(self) -> tuple[Part, ...]:
        """What was said beside the content: whole tool calls, reasoning, refusal, annotations."""
        return parts_of(self.delta)


@dataclass(slots=True)
class Answer:
    """Everything that was said in an answer."""

    context: Context | None = None
    start: dict[str, Any] = field(default_factory=dict)
    choices: dict[int, Choice] = field(default_factory=dict)
    detections: list[Detections] = field(default_factory=list)
    follow_ups: tuple[str, ...] = ()
    usage: Usage | None = None
    completion: bytes = b""
    steps: tuple[Step, ...] = ()

    def take(self, batch: Batch) -> None:
        """Adds a batch of events.

        Raises:
            Unavailable: The model server sent something that cannot be put together.
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
                    raise Unavailable("The model server streamed an answer that was asked for in one piece.")

    def _choice(self, index: int) -> Choice:
        choice = self.choices.get(index)
        if choice is None:
            choice = self.choices[index] = Choice()
        return choice


def usage_object(usage: Usage | None) -> Any:
    """Numbers of tokens as OpenAI's clients read them: the model server's own object where it sent one."""
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
    """Findings as clients of the guardrails ADR read them; those with a span first, by their start."""
    told = [finding for finding in event.findings if not finding.withheld]
    ordered = sorted(told, key=lambda finding: (finding.start is None, finding.start or 0))
    return [_result(finding, event.direction) for finding in ordered]


def _result(finding: Finding, direction: Direction) -> dict[str, Any]:
    result: dict[str, Any] = {}
    # What was kept from the client in the answer is not told here, either; its own words it knows.
    shown = finding.action is Action.REPORT or direction is Direction.INPUT
    if finding.start is not None:
        text = finding.text if shown else finding.replacement
        result = {"start": finding.start, "end": finding.end, "text": text}
    result |= {
        "detection_type": finding.detection_type,
        "detection": finding.detection,
        "detector_id": finding.detector_id,
        "score": finding.score,
    }
    if finding.extra_json and shown:
        result |= members_of(finding.extra_json)
    return result


def asked_of(detectors: Detectors) -> tuple[Direction, ...]:
    """The sides on which there are detectors."""
    return tuple(direction for direction in Direction if getattr(detectors, direction.value))


def detections_block(detections: Sequence[Detections], asked: Sequence[Direction]) -> dict[str, Any]:
    """The ``detections`` of an answer: a key for each side that was asked for, whether it fired or not."""
    item = {Direction.INPUT: "message_index", Direction.CONTEXT: "passage_index", Direction.OUTPUT: "choice_index"}
    block: dict[str, Any] = {}
    for direction in asked:
        by_item: dict[int, list[dict[str, Any]]] = {}
        for event in detections:
            if event.direction is direction and (results := detection_results(event)):
                by_item.setdefault(event.item, []).extend(results)
        block[direction.value] = [
            {item[direction]: index, "results": sorted(results, key=_place)}
            for index, results in sorted(by_item.items())
        ]
    return block


def _place(result: dict[str, Any]) -> tuple[bool, int]:
    return "start" not in result, result.get("start", 0)


def warnings_of(detections: Sequence[Detections]) -> list[dict[str, str]]:
    """What the client should be told beside the answer."""
    warnings = []
    if any(event.direction is Direction.OUTPUT and event.findings for event in detections):
        warnings.append({"type": "UNSUITABLE_OUTPUT", "message": "Unsuitable output detected."})
    for event in detections:
        warnings += map(failure_warning, event.failures)
        warnings += map(left_out_warning, event.left_out)
    return warnings


def left_out_warning(path: str) -> dict[str, str]:
    """The warning that a member of an answer was left out, because no detector can judge it."""
    return {"type": "UNJUDGED_OUTPUT", "message": f"{path} was left out: no detector can judge it."}


def failure_warning(failure: DetectorFailure) -> dict[str, str]:
    """The warning that a detector failed, or that it was not asked."""
    kind = "DETECTOR_NOT_ASKED" if failure.not_asked else "DETECTOR_ERROR"
    return {"type": kind, "message": f"{failure.detector_id}: {failure.message}"}
