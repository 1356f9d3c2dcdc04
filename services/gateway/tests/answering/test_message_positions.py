"""gateway.answering.message_positions: the positions of findings in the request's messages."""

from dataclasses import replace

from gateway.answering.message_positions import in_request
from gateway.domain import (
    PART_BREAK,
    Action,
    Detections,
    DetectorFailure,
    Direction,
    Finding,
    Message,
    OriginalRequest,
    Turn,
)
from hypothesis import given
from hypothesis import strategies as st
from servicekit.principal import LOCAL

FAILURE = DetectorFailure("d", "no")


def finding(text: str, start: int | None, end: int | None) -> Finding:
    return Finding("d", "t", "n", 1.0, Action.REPORT, start, end, text[start:end])


def turn(*parts: str) -> Turn:
    """Return a question of several messages, each after a system message, and one more message at the end."""
    messages = [Message("system", "s"), *(Message("user", part) for part in parts), Message("system", "s")]
    return Turn(
        LOCAL,
        PART_BREAK.join(parts),
        (messages[0], messages[-1]),
        original=OriginalRequest(
            messages=tuple(messages) if len(parts) > 1 else (),
            places=(0, len(parts) + 1, *range(1, len(parts) + 1)),
        ),
    )


def found(item: int, *findings: Finding, failures: tuple[DetectorFailure, ...] = ()) -> Detections:
    return Detections(Direction.INPUT, item, findings, failures)


def test_without_places_positions_stay() -> None:
    """Findings of a turn without places keep their positions."""
    findings = (found(3, finding("abc", 0, 2)),)
    assert in_request(replace(turn("abc"), original=replace(turn("abc").original, places=())), findings) == findings


def test_a_question_of_one_message() -> None:
    """A question of one message keeps its spans, and so do the messages after it."""
    one = finding("abc", 0, 2)
    assert in_request(turn("abc"), [found(0, one), found(1, one), found(2, one, failures=(FAILURE,))]) == (
        found(0, one),
        found(2, one),
        found(1, one, failures=(FAILURE,)),
    )


def test_findings_about_the_whole_question() -> None:
    """A finding without a span and a failure belong to the last message of the question."""
    whole = finding("abc", None, None)
    assert in_request(turn("abc", "d"), [found(2, whole, failures=(FAILURE,))]) == (
        found(2, whole, failures=(FAILURE,)),
    )


def test_a_finding_across_two_messages() -> None:
    """A finding across two messages is divided, and each part has its text."""
    requested = turn("abc", "defg")
    assert in_request(requested, [found(2, finding(requested.question, 1, 7))]) == (
        found(1, finding("abc", 1, 3)),
        found(2, finding("defg", 0, 2)),
    )
    assert in_request(requested, [found(2, finding(requested.question, 3, 5))]) == ()


@given(st.lists(st.text(min_size=1, max_size=5), min_size=2, max_size=4), st.data())
def test_spans_quote_their_messages(parts: list[str], data: st.DataObject) -> None:
    """A span in the request's messages covers the same text as in the question."""
    requested = turn(*parts)
    start = data.draw(st.integers(0, len(requested.question) - 1))
    end = data.draw(st.integers(start + 1, len(requested.question)))
    mapped = in_request(requested, [found(2, finding(requested.question, start, end))])
    covered = [
        requested.original.messages[detections.item].text[f.start : f.end]
        for detections in mapped
        for f in detections.findings
    ]
    assert covered == [f.text for detections in mapped for f in detections.findings]
    # The breaks between messages belong to no message.
    ends = [sum(map(len, parts[: n + 1])) + n * len(PART_BREAK) for n in range(len(parts) - 1)]
    breaks = {at for end in ends for at in range(end, end + len(PART_BREAK))}
    assert "".join(covered) == "".join(requested.question[at] for at in range(start, end) if at not in breaks)
