"""Reads ``moderation`` of a request, which names a detector for input and output, and renders the findings."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.dialects.answer import detections_block, directions_of, warnings_of
from gateway.dialects.json_fields import Fields
from gateway.domain import Detections, Detectors, Direction

_ACTIONS = {"": "report", "score": "report", "block": "block"}


def detectors(fields: Fields) -> dict[str, Any]:
    """Return the ``detectors`` of a request, with the detector that its ``moderation`` names.

    Raises:
        InvalidRequest: ``moderation`` names no detector, or a mode is invalid.
    """
    options = fields.object("moderation")
    block: dict[str, Any] = dict(fields.object("detectors").members())
    if fields.get("moderation") is None:
        return block
    model, policy = options.text("model"), options.object("policy")
    if not model:
        raise options.invalid("model", "must be the name of a detector")
    for direction in ("input", "output"):
        mode = policy.object(direction).one_of("mode", ("score", "block"))
        requested = fields.object("detectors").object(direction)
        block[direction] = {model: {"action": _ACTIONS[mode]}, **dict(requested.members())}
    return block


def findings(model: str, detectors: Detectors, detections: Sequence[Detections]) -> dict[str, Any]:
    """Return the members of a response that report findings and failures.

    Args:
        model: The name of the detector in ``moderation``, or empty if the request has no ``moderation``.
        detectors: The detectors of the turn.
        detections: The findings of all detectors.
    """
    members: dict[str, Any] = {"moderation": _results(model, detections)} if model else {}
    if directions := directions_of(detectors):
        members["detections"] = detections_block(detections, directions)
        if warnings := warnings_of(detections):
            members["warnings"] = warnings
    return members


def without_findings(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return a response without the findings, which can contain text that the detectors removed."""
    return {name: value for name, value in response.items() if name not in _FINDING_MEMBERS} | {"moderation": None}


_FINDING_MEMBERS = ("detections", "warnings")
_DIRECTIONS = (Direction.INPUT, Direction.OUTPUT)


def _results(model: str, detections: Sequence[Detections]) -> dict[str, Any]:
    """Return the findings of a detector in the format of the API reference: categories and scores, but no text."""
    return {
        direction.value: _result(model, [event for event in detections if event.direction is direction])
        for direction in _DIRECTIONS
    }


def _result(model: str, detections: Sequence[Detections]) -> dict[str, Any]:
    failed = [failure for event in detections for failure in event.failures if failure.detector_id == model]
    if failed:
        return {"type": "error", "code": "moderation_failed", "message": failed[0].message}
    scores: dict[str, float] = {}
    own_findings = (finding for event in detections for finding in event.findings if finding.detector_id == model)
    for finding in own_findings:
        scores[finding.detection] = max(finding.score, scores.get(finding.detection, 0.0))
    return {
        "type": "moderation_result",
        "model": model,
        "flagged": bool(scores),
        "categories": dict.fromkeys(scores, True),
        "category_scores": scores,
        "category_applied_input_types": {name: ["text"] for name in scores},
    }
