"""detection.detectors.patterns.matching: the matches of one pattern."""

import math

import pytest
from detection.detectors.patterns import matching
from detection.detectors.patterns.matching import Limits, Matcher, Pattern, following, preceding
from detection.detectors.patterns.partial import SENTINEL
from detection.detectors.port import DetectorFailed


def _spans(pattern: Pattern, text: str, limits: Limits | None = None) -> list[str]:
    data = text.encode()
    spans, rest = Matcher(pattern).scan(data, 0, len(data), limits or Limits(), math.inf)
    assert rest == len(data)
    return [data[start:end].decode() for start, end in spans]


def test_matches_of_a_complete_text() -> None:
    """All matches are found from left to right, each after the one before."""
    assert _spans(Pattern("t", "n", "a+b?"), "aab é ab a") == ["aab", "ab", "a"]


def test_a_growing_text_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """All forms of a pattern are compiled when the matcher is created, so that no text waits for a compilation."""
    matcher = Matcher(Pattern("t", "n", "a+b?"))
    monkeypatch.setattr(matching, "Regex", None)
    data = b"aab a" + SENTINEL
    assert matcher.scan(data, 0, 5, Limits(), math.inf) == ([(0, 3)], 4)


def test_a_rejected_match_hides_no_other_match() -> None:
    """If the check rejects a match, a match that begins inside it is still found."""
    pattern = Pattern("t", "n", r"\d{3}", accept=lambda text, start, end: text[start:end] == b"234")
    assert _spans(pattern, "1234") == ["234"]


def test_overlapping_matches_are_found_on_request() -> None:
    """Overlapping matches are found if the pattern asks for them."""
    assert _spans(Pattern("t", "n", "aéa"), "aéaéa") == ["aéa"]
    assert _spans(Pattern("t", "n", "aéa", overlapping=True), "aéaéa") == ["aéa", "aéa"]


def test_the_next_match_may_use_the_text_after_the_group() -> None:
    """The text after the group is part of the pattern, and the next match may use it."""
    assert _spans(Pattern("t", "n", "(ab)(?:a|$)", grouped=True), "ababab") == ["ab", "ab", "ab"]


def test_empty_matches_are_ignored() -> None:
    """A match without characters is ignored and does not stop the search."""
    assert _spans(Pattern("t", "n", "a*"), "baéa") == ["a", "a"]


def test_a_scan_of_a_growing_text_returns_only_certain_matches() -> None:
    """With the sentinel at the end, a scan returns only certain matches, and the start of the undecided text."""
    matcher = Matcher(Pattern("t", "n", "ab+"))
    assert matcher.scan(b"abxab\xff", 0, 5, Limits(), math.inf) == ([(0, 2)], 3)
    assert matcher.scan(b"abx\xff", 0, 3, Limits(), math.inf) == ([(0, 2)], 3)


def test_a_reached_limit_fails_the_detector() -> None:
    """If there are too many matches, or the search takes too long, the detector fails."""
    with pytest.raises(DetectorFailed, match="more than 2 spans"):
        _spans(Pattern("t", "n", "a"), "aaa", Limits(detections=2))
    with pytest.raises(DetectorFailed, match="longer than 1 s"):
        Matcher(Pattern("t", "n", "a")).scan(b"a", 0, 1, Limits(), -math.inf)


def test_steps_to_a_neighbour_count_characters() -> None:
    """Steps to a neighbour count characters instead of bytes, and stay inside the text."""
    text = "a🔑é".encode()
    assert [following(text, 0), following(text, 1), following(text, 5)] == [1, 5, 7]
    assert [preceding(text, 7), preceding(text, 5), preceding(text, 1), preceding(text, 0)] == [5, 1, 0, 0]
