"""``detections`` as the guardrails orchestrator's clients read them."""

from gateway.dialects.orchestrator import detections
from gateway.domain import Action, Detections, Direction, Finding


def finding(detector: str, start: int | None = None) -> Finding:
    end = None if start is None else start + 1
    return Finding(detector, "kind", "what", 0.5, Action.REPORT, start, end, "x")


def test_findings_with_a_span_come_first() -> None:
    """Findings of all events are sorted: those with a span by start, then the others by detector."""
    events = [
        Detections(Direction.OUTPUT, 1, (finding("b"), finding("z", 4))),
        Detections(Direction.OUTPUT, 0, ()),
        Detections(Direction.OUTPUT, 1, (finding("a"), finding("y", 0), finding("b"))),
    ]
    results = detections.results_by_item(events)
    assert [(result["detector_id"], result.get("start")) for result in results[1]] == [
        ("y", 0),
        ("z", 4),
        ("a", None),
        ("b", None),
        ("b", None),
    ]
    assert detections.entries(Direction.OUTPUT, results) == [{"choice_index": 1, "results": results[1]}]


def test_spans_can_be_moved() -> None:
    """The offset is added to each span. Findings without a span remain unchanged."""
    results = detections.plain_results(Detections(Direction.INPUT, 0, (finding("a", 7), finding("b"))))
    moved = detections.shifted(results, -5)
    assert [(result.get("start"), result.get("end")) for result in moved] == [(2, 3), (None, None)]
