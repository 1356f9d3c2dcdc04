"""Events gathered into one answer, for the routes that answer in one piece."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.domain import (
    Batch,
    Completion,
    Context,
    Delta,
    Detections,
    Direction,
    Done,
    Finding,
    Finish,
    FollowUps,
    Start,
    Step,
    Usage,
)


@dataclass(slots=True)
class Choice:
    """One of the answers that were asked for."""

    texts: list[str] = field(default_factory=list)
    members: dict[str, Any] = field(default_factory=dict)
    finish_reason: str = ""

    @property
    def text(self) -> str:
        """Its content."""
        return "".join(self.texts)


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
        """Adds a batch of events."""
        for event in batch:
            match event:
                case Delta():
                    choice = self._choice(event.choice)
                    if event.text:
                        choice.texts.append(event.text)
                    if event.raw_json:
                        merge(choice.members, msgspec.json.decode(event.raw_json))
                case Finish():
                    choice = self._choice(event.choice)
                    choice.finish_reason = event.reason
                    if event.raw_json:
                        merge(choice.members, msgspec.json.decode(event.raw_json))
                case Context():
                    self.context = event
                case Start():
                    self.start = msgspec.json.decode(event.raw_json)
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

    def _choice(self, index: int) -> Choice:
        return self.choices.setdefault(index, Choice())


def merge(whole: dict[str, Any], piece: dict[str, Any]) -> None:
    """Adds a streamed piece of a choice to what came before it, as OpenAI's clients do.

    Text grows (but for names and ids, which come once), lists of numbered things (tool calls) grow item by item,
    other lists (token log probabilities) are joined.
    """
    for name, value in piece.items():
        before = whole.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            merge(before, value)
        elif isinstance(value, list) and isinstance(before, list):
            _merge_lists(before, value)
        elif isinstance(value, str) and isinstance(before, str) and name not in ("id", "type", "role", "name"):
            whole[name] = before + value
        elif value is not None or name not in whole:
            whole[name] = value


def _merge_lists(whole: list[Any], piece: list[Any]) -> None:
    for item in piece:
        number = item.get("index") if isinstance(item, dict) else None
        same = next((old for old in whole if isinstance(old, dict) and old.get("index") == number), None)
        if number is None or same is None:
            whole.append(item)
        else:
            merge(same, item)


def detection_results(findings: tuple[Finding, ...]) -> list[dict[str, Any]]:
    """Findings as clients of the guardrails ADR read them; those with a span first, by their start."""
    ordered = sorted(findings, key=lambda finding: (finding.start is None, finding.start or 0))
    return [_result(finding) for finding in ordered]


def _result(finding: Finding) -> dict[str, Any]:
    result: dict[str, Any] = {}
    if finding.start is not None:
        result = {"start": finding.start, "end": finding.end, "text": finding.text}
    result |= {
        "detection_type": finding.detection_type,
        "detection": finding.detection,
        "detector_id": finding.detector_id,
        "score": finding.score,
    }
    if finding.extra_json:
        result |= msgspec.json.decode(finding.extra_json)
    return result


def detections_block(detections: list[Detections], asked: tuple[Direction, ...]) -> dict[str, Any]:
    """The ``detections`` of an answer: a key for each side that was asked for, whether it fired or not."""
    item = {Direction.INPUT: "message_index", Direction.CONTEXT: "passage_index", Direction.OUTPUT: "choice_index"}
    block: dict[str, Any] = {}
    for direction in asked:
        by_item: dict[int, list[dict[str, Any]]] = {}
        for event in detections:
            if event.direction is direction and event.findings:
                by_item.setdefault(event.item, []).extend(detection_results(event.findings))
        block[direction.value] = [
            {item[direction]: index, "results": results} for index, results in sorted(by_item.items())
        ]
    return block


def warnings_of(detections: list[Detections]) -> list[dict[str, str]]:
    """What the client should be told beside the answer."""
    warnings = []
    if any(event.direction is Direction.OUTPUT and event.findings for event in detections):
        warnings.append({"type": "UNSUITABLE_OUTPUT", "message": "Unsuitable output detected."})
    warnings += [
        {"type": "DETECTOR_ERROR", "message": f"{failure.detector_id}: {failure.message}"}
        for event in detections
        for failure in event.failures
    ]
    return warnings
