"""``detections`` and ``warnings`` in the guardrails orchestrator's format."""

from collections.abc import Iterable, Mapping
from typing import Any

from gateway.dialects.answer import detection_results
from gateway.domain import Detections, Direction

UNSUITABLE_INPUT = {
    "type": "UNSUITABLE_INPUT",
    "message": "Unsuitable input detected. Please check the detected entities on your input and try again with the "
    "unsuitable input removed.",
}
UNSUITABLE_OUTPUT = {"type": "UNSUITABLE_OUTPUT", "message": "Unsuitable output detected."}
NO_OUTPUT = {"type": "EMPTY_OUTPUT", "message": "No choice has content, so that `detections.output` is empty"}

Results = list[dict[str, Any]]
_ITEMS = {Direction.INPUT: "message_index", Direction.CONTEXT: "passage_index", Direction.OUTPUT: "choice_index"}


def no_content(choice: int) -> dict[str, str]:
    """Return the warning that a choice has no content to judge."""
    return {"type": "EMPTY_OUTPUT", "message": f"Choice of index {choice} has no content"}


def ordered(results: Results) -> Results:
    """Return the results in order: those with a span by their start; then the others, by detector."""
    return sorted(
        results,
        key=lambda each: (0, each["start"], "") if "start" in each else (1, 0, each["detector_id"]),
    )


def by_item(events: Iterable[Detections]) -> dict[int, Results]:
    """Return the non-empty results of each item, in order."""
    found: dict[int, Results] = {}
    for event in events:
        if results := detection_results(event):
            found.setdefault(event.item, []).extend(results)
    return {item: ordered(results) for item, results in sorted(found.items())}


def entries(direction: Direction, results: Mapping[int, Results]) -> list[dict[str, Any]]:
    """Return the entries of a direction."""
    return [{_ITEMS[direction]: item, "results": each} for item, each in results.items()]


def moved(results: Results, by: int) -> Results:
    """Return the results with their spans shifted right by this many code points."""
    return [
        each | {"start": each["start"] + by, "end": each["end"] + by} if "start" in each else each
        for each in results
    ]


def plain_results(event: Detections) -> Results:
    """Return the results of one text, in order, in the format of the detection-only routes."""
    return ordered(detection_results(event))
