"""Renders ``detections`` and ``warnings`` in the guardrails orchestrator's format."""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.dialects.answer import ITEM_NAMES, detection_results
from gateway.domain import Detections, Direction

UNSUITABLE_INPUT = {
    "type": "UNSUITABLE_INPUT",
    "message": "Unsuitable input detected. Please check the detected entities on your input and try again with the "
    "unsuitable input removed.",
}
UNSUITABLE_OUTPUT = {"type": "UNSUITABLE_OUTPUT", "message": "Unsuitable output detected."}
NO_OUTPUT = {"type": "EMPTY_OUTPUT", "message": "No choice has content, so `detections.output` is empty"}

Results = list[dict[str, Any]]
"""Findings in the orchestrator's format."""


def no_content_warning(choice: int) -> dict[str, str]:
    """Return the warning that a choice has no content to judge."""
    return {"type": "EMPTY_OUTPUT", "message": f"Choice of index {choice} has no content"}


def ordered(results: Results) -> Results:
    """Return the results in order: first those with a span, by start, then the others, by detector."""
    return sorted(
        results,
        key=lambda result: (0, result["start"], "") if "start" in result else (1, 0, result["detector_id"]),
    )


def results_by_item(events: Iterable[Detections]) -> dict[int, Results]:
    """Return the ordered results of each message, passage or choice that has results, by its position."""
    collected: dict[int, Results] = {}
    for event in events:
        if results := detection_results(event):
            collected.setdefault(event.item, []).extend(results)
    return {item: ordered(results) for item, results in sorted(collected.items())}


def entries(direction: Direction, results: Mapping[int, Results]) -> list[dict[str, Any]]:
    """Return the entries of a direction: for each message, passage or choice, its position and its results."""
    return [{ITEM_NAMES[direction]: item, "results": item_results} for item, item_results in results.items()]


def shifted(results: Results, offset: int) -> Results:
    """Return the results with their spans shifted by a number of code points."""
    return [
        result | {"start": result["start"] + offset, "end": result["end"] + offset} if "start" in result else result
        for result in results
    ]


def plain_results(event: Detections) -> Results:
    """Return the ordered results of one text in the format of the detection-only routes."""
    return ordered(detection_results(event))
