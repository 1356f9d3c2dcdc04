"""detection.detectors.regex: named patterns and the caller's own patterns."""

import pytest
from causeway_testing.guardrails.detectors import quick
from detection.detectors.params import BadParam
from detection.detectors.patterns.matching import Limits
from detection.detectors.port import Detector
from detection.detectors.regex import regex

_KIND = regex(Limits())


def _make(*patterns: str) -> Detector:
    return quick(_KIND, regex=patterns)


def test_named_and_custom_patterns_have_their_names() -> None:
    """Detections of named patterns have the patterns' names, all others `custom_regex`. They are ordered by start.
    The score is 1.
    """
    found = _make(r"[A-Z]{2}-\d+", "email", "email").detect("a@b.co AB-12")
    assert [(detection.type, detection.name, detection.text, detection.score) for detection in found] == [
        ("pii", "email_address", "a@b.co", 1.0),
        ("regex", "custom_regex", "AB-12", 1.0),
    ]


@pytest.mark.parametrize(
    ("patterns", "path", "message"),
    [
        (["email", "(?=a)b"], "regex[1]", "not supported: invalid perl operator"),
        (["(a)\\1"], "regex[0]", "not supported: invalid escape sequence"),
        (["a("], "regex[0]", "not supported: missing"),
        ([r"\C"], "regex[0]", "split a character"),
        (["a*"], "regex[0]", "matches the empty text"),
        ([r"(?:\pL{1,30} ){1,30}"], "regex[0]", "too large"),
        ([f"[a-z]{{900}}{n}" for n in range(12)], "regex", "too large together"),
        ([], "regex", "length >= 1"),
        ([""], "regex[0]", "length >= 1"),
        (["a" * 1001], "regex[0]", "length <= 1000"),
        (["a"] * 33, "regex", "length <= 32"),
    ],
)
def test_a_bad_pattern_is_refused(patterns: list[str], path: str, message: str) -> None:
    """A pattern that the engine cannot run in linear time and bounded memory is refused by name."""
    with pytest.raises(BadParam) as raised:
        _make(*patterns)
    assert raised.value.path == path
    assert message in raised.value.message


def test_no_pattern_takes_exponential_time() -> None:
    """A pattern that takes exponential time in other engines finds its matches."""
    detector = _make("(a+)+$")
    text = "a" * 100_000
    assert len(detector.detect(text)) == 1
    assert detector.detect(text + "b") == []
