"""detection.moderation.rules: the actions that follow from detections."""

import pytest
from causeway_testing.guardrails.fake import ScriptedDetector
from detection.detectors.port import DetectorFailed
from detection.domain import Action, Detection, Failure, Finding, OnError
from detection.moderation.rules import (
    Rule,
    merged_spans,
    redact,
    sort_key,
    strictest,
    with_merged_replacements,
)
from hypothesis import given
from hypothesis import strategies as st


def _rule(action: Action) -> Rule:
    return Rule("d", ScriptedDetector("x"), action, OnError.BLOCK, "#")


def _finding(start: int, end: int, action: Action = Action.REDACT, replacement: str = "#") -> Finding:
    return Finding(Detection("t", "n", "", start, end), "d", action, replacement)


def test_findings_have_the_action_of_the_rule() -> None:
    """A rule gives its detections its action. Only a redacted finding has a replacement."""
    detection = Detection("t", "n", "x", 0, 1)
    assert list(_rule(Action.REDACT).findings([detection])) == [Finding(detection, "d", Action.REDACT, "#")]
    assert list(_rule(Action.REPORT).findings([detection])) == [Finding(detection, "d", Action.REPORT, "")]


def test_a_finding_without_a_span_blocks_instead_of_redacting() -> None:
    """If the rule redacts, a finding about the whole text blocks, because it has no span."""
    (finding,) = _rule(Action.REDACT).findings([Detection("t", "n")])
    assert finding.action is Action.BLOCK


def test_a_failure_has_no_internal_details() -> None:
    """The client gets the message of a detector's failure, but no internal details of a defect."""
    rule = _rule(Action.REPORT)
    assert rule.failure(DetectorFailed("too slow")) == Failure("d", "too slow")
    assert rule.failure(ZeroDivisionError("secret")) == Failure("d", "the detector failed unexpectedly")


def test_the_strictest_action_applies() -> None:
    """Block is stricter than redact, and redact is stricter than report. Without findings there is no action."""
    report, redact, block = (_finding(0, 1, action) for action in (Action.REPORT, Action.REDACT, Action.BLOCK))
    assert strictest([report, block, redact]) is Action.BLOCK
    assert strictest([report, redact]) is Action.REDACT
    assert strictest([]) is Action.NONE


def test_findings_are_ordered_by_position() -> None:
    """Findings are ordered by start and end. Findings without a span come last."""
    whole = Finding(Detection("t", "n"), "d", Action.REPORT)
    assert sorted([whole, _finding(3, 5), _finding(3, 4), _finding(0, 9)], key=sort_key) == [
        _finding(0, 9),
        _finding(3, 4),
        _finding(3, 5),
        whole,
    ]


def test_overlapping_spans_to_redact_become_one_span() -> None:
    """Overlapping spans become one with the first replacement. Adjacent spans stay separate."""
    findings = [_finding(0, 3, replacement="A"), _finding(2, 5), _finding(5, 6, replacement="B")]
    assert merged_spans([*findings, _finding(8, 9, Action.REPORT)]) == [(0, 5, "A"), (5, 6, "B")]


def test_only_the_first_of_overlapping_spans_has_a_replacement() -> None:
    """Among overlapping spans, only the first one keeps its replacement."""
    findings = [
        _finding(0, 9),
        _finding(1, 3, Action.REPORT, ""),
        _finding(2, 4),
        _finding(8, 11),
        _finding(11, 12),
    ]
    assert [finding.replacement for finding in with_merged_replacements(findings)] == ["#", "", "", "", "#"]


_SPANS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 6), st.sampled_from([Action.REPORT, Action.REDACT])), max_size=6
)


@given(st.text(min_size=26, max_size=30), _SPANS)
def test_a_redaction_changes_only_the_redacted_spans(text: str, spans: list[tuple[int, int, Action]]) -> None:
    """Redacted spans are gone and all other text is unchanged. Replacing the findings one by one gives the same
    text.
    """
    findings = sorted((_finding(start, start + size, action) for start, size, action in spans), key=sort_key)
    hidden = {
        at
        for finding in findings
        if finding.action is Action.REDACT
        for at in range(finding.detection.start or 0, finding.detection.end or 0)
    }
    merged = merged_spans(findings)
    starts, inside = {start for start, _, _ in merged}, {at for start, end, _ in merged for at in range(start, end)}
    assert inside == hidden
    expected = "".join(
        "#" if at in starts else "" if at in hidden else character for at, character in enumerate(text)
    )
    assert redact(text, findings, joint="") == expected
    one_by_one, done = "", 0
    for finding in with_merged_replacements(findings):
        start, end = finding.detection.start or 0, finding.detection.end or 0
        if finding.action is Action.REDACT:
            one_by_one += text[done:start] + finding.replacement
            done = max(done, end)
    assert one_by_one + text[done:] == expected


@pytest.mark.parametrize(
    ("text", "replacement", "expected"),
    [
        ("a tern4111", "[R]", "a [R]_4111"),
        ("4111tern b", "[R]", "4111_[R] b"),
        ("4111tern4111", "[R]", "4111_[R]_4111"),
        ("4111tern4111", "", "41114111"),
        ("4111tern4111", "x", "4111x4111"),
        ("é tern, b", "***", "é ***, b"),
    ],
)
def test_the_rest_of_a_cut_word_is_not_a_word(text: str, replacement: str, expected: str) -> None:
    """If a redaction cuts a word, an underscore joins the rest of the word and the replacement, so that the rest is
    not a separate word. An empty replacement, or a word as the replacement, needs no underscore.
    """
    start = text.index("tern")
    assert redact(text, [_finding(start, start + 4, replacement=replacement)]) == expected
