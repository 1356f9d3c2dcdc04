import pytest
from gateway.dialects.answer import Answer, detections_block, warnings_of
from gateway.domain import (
    Action,
    Chunk,
    Delta,
    Detections,
    DetectorFailure,
    Direction,
    Done,
    Finding,
    Finish,
    Reasoning,
    Start,
    ToolCall,
    Usage,
)
from servicekit.errors import Unavailable


def test_an_answer_is_collected() -> None:
    """The answer has each choice with its text, members and finish reason, and the model server's other members."""
    answer = Answer()
    answer.add_events([Start(b'{"id":"x","model":"m"}'), Delta(1, "b"), Delta(0, "a", b'{"reasoning":"r"}')])
    answer.add_events([Start(b'{"system_fingerprint":"f"}'), Delta(1, "c", b"", b'{"logprobs":{"content":[1]}}')])
    answer.add_events([Finish(1, "length", b'{"stop_reason":7}'), Usage(1, 2), Done(())])
    assert answer.start == {"id": "x", "model": "m", "system_fingerprint": "f"}
    assert (answer.choices[0].text, answer.choices[1].text) == ("a", "bc")
    assert answer.choices[0].delta == {"reasoning": "r"}
    assert answer.choices[1].members == {"logprobs": {"content": [1]}, "stop_reason": 7}
    assert answer.choices[1].finish_reason == "length"
    assert answer.usage == Usage(1, 2)


@pytest.mark.parametrize("raw", [b'{"a":"\\ud800"}', b"[]", b"{", b'{"a":1e400}'])
def test_invalid_members_are_a_failure_of_the_model_server(raw: bytes) -> None:
    """Members that are not a valid JSON object raise `Unavailable`."""
    for event in (Delta(0, "", raw), Delta(0, "a", b"", raw), Finish(0, "stop", raw), Start(raw)):
        with pytest.raises(Unavailable, match="not a valid JSON object"):
            Answer().add_events([event])


def test_an_unrequested_stream_is_a_failure() -> None:
    """The gateway cannot build an answer in one piece from the model server's chunks."""
    with pytest.raises(Unavailable):
        Answer().add_events([Chunk(b"{}")])


def finding(start: int | None, detector: str = "d", extra: bytes = b"") -> Finding:
    end = None if start is None else start + 1
    return Finding(detector, "pii", "mail", 0.5, Action.REPORT, start, end, "x", "", extra)


def test_detections_have_a_key_for_each_requested_direction() -> None:
    """Items are sorted by number. Results with a span come first, by start."""
    detections = [
        Detections(Direction.OUTPUT, 1, (finding(5),)),
        Detections(Direction.OUTPUT, 0, (finding(None), finding(7), finding(2, extra=b'{"evidence":[1]}'))),
        Detections(Direction.OUTPUT, 1, (finding(1),)),
    ]
    block = detections_block(detections, (Direction.INPUT, Direction.OUTPUT))
    assert block["input"] == []
    assert [entry["choice_index"] for entry in block["output"]] == [0, 1]
    first, second = block["output"]
    assert [result.get("start") for result in first["results"]] == [2, 7, None]
    assert first["results"][0] == {
        "start": 2,
        "end": 3,
        "text": "x",
        "detection_type": "pii",
        "detection": "mail",
        "detector_id": "d",
        "score": 0.5,
        "evidence": [1],
    }
    assert "text" not in first["results"][2]
    assert len(second["results"]) == 2


@pytest.mark.parametrize(
    ("direction", "action", "expected"),
    [
        (Direction.OUTPUT, Action.REPORT, "secret"),
        (Direction.OUTPUT, Action.REDACT, "[X]"),
        (Direction.OUTPUT, Action.BLOCK, ""),
        (Direction.CONTEXT, Action.REDACT, "[X]"),
        (Direction.INPUT, Action.REDACT, "secret"),
    ],
)
def test_detections_do_not_quote_withheld_text(direction: Direction, action: Action, expected: str) -> None:
    """Detections quote the replacement of redacted text. They quote only the user's own text in full."""
    replacement = "[X]" if action is Action.REDACT else ""
    redacted = Finding("d", "pii", "mail", 1.0, action, 0, 6, "secret", replacement)
    block = detections_block([Detections(direction, 0, (redacted,))], (direction,))
    assert block[direction.value][0]["results"][0]["text"] == expected


def test_results_of_several_events_are_sorted() -> None:
    """Results are sorted by start, and results without a span are last."""
    spans = [(4, 6), (None, None), (0, 2), (2, 3)]
    events = [
        Detections(Direction.INPUT, 0, (Finding("d", "t", "n", 1.0, Action.REPORT, start, end),))
        for start, end in spans
    ]
    [item] = detections_block(events, (Direction.INPUT,))["input"]
    assert [result.get("start") for result in item["results"]] == [0, 2, 4, None]


def test_warnings_report_findings_and_failures() -> None:
    """Warnings report findings of the output and failed or skipped detectors."""
    failures = (DetectorFailure("pii", "no answer"), DetectorFailure("near", "no passages", 422, not_asked=True))
    detections = [Detections(Direction.OUTPUT, 0, (finding(1),)), Detections(Direction.INPUT, 0, (), failures)]
    assert warnings_of(detections) == [
        {"type": "UNSUITABLE_OUTPUT", "message": "Unsuitable output detected."},
        {"type": "DETECTOR_ERROR", "message": "pii: no answer"},
        {"type": "DETECTOR_NOT_ASKED", "message": "near: no passages"},
    ]
    assert warnings_of([Detections(Direction.INPUT, 0, (finding(1),))]) == []


def test_a_choice_joins_its_parts() -> None:
    """Tool calls and reasoning are joined from their pieces."""
    answer = Answer()
    answer.add_events(
        [Delta(0, "", b'{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}]}')]
    )
    answer.add_events(
        [Delta(0, "", b'{"tool_calls":[{"index":0,"function":{"arguments":"}"}}],"reasoning":"Hm."}')]
    )
    thought, call = answer.choices[0].parts
    assert thought == Reasoning("Hm.")
    assert isinstance(call, ToolCall)
    assert (call.id, call.name, call.arguments) == ("c", "f", "{}")
