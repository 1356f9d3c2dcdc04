"""detection.detectors.port: the contract of quick detectors, for those that find phrases and for the fake."""

from collections.abc import Callable

import pytest
from causeway_testing.guardrails.detectors import quick
from causeway_testing.guardrails.fake import ScriptedDetector
from detection.detectors.ban_substrings import ban_substrings
from detection.detectors.patterns.matching import Limits
from detection.detectors.port import WHOLE_TEXT_LIMIT, Detector, DetectorFailed, WholeTextDetector
from detection.detectors.regex import regex
from hypothesis import given
from hypothesis import strategies as st

_PHRASE = "aba é"

_MAKERS: dict[str, Callable[[], Detector]] = {
    "regex": lambda: quick(regex(Limits()), regex=[_PHRASE]),
    "ban_substrings": lambda: quick(ban_substrings(Limits()), substrings=[_PHRASE]),
    "scripted": lambda: ScriptedDetector(_PHRASE),
    "whole": lambda: WholeTextDetector(ScriptedDetector(_PHRASE).detect, 100),
}


@pytest.fixture(params=_MAKERS, scope="module")
def detector(request: pytest.FixtureRequest) -> Detector:
    """Return each detector in turn, configured to find the same phrase."""
    return _MAKERS[request.param]()


def test_detections_of_a_whole_text_are_ordered(detector: Detector) -> None:
    """Detections are ordered, their spans are code points, their text is the text of the span, and their scores are
    above 0 and at most 1. An empty text has none.
    """
    text = f"🔑 {_PHRASE}, {_PHRASE}"
    found = detector.detect(text)
    assert [(detection.start, detection.end, detection.text) for detection in found] == [
        (2, 7, _PHRASE),
        (9, 14, _PHRASE),
    ]
    assert all(0 < detection.score <= 1 for detection in found)
    assert detector.detect("") == []


def test_streams_are_independent(detector: Detector) -> None:
    """Two growing texts of one detector do not affect each other."""
    first, second = detector.stream(), detector.stream()
    first.feed("aba", False)
    assert second.feed(" é", True) == (2, [])
    decided, found = first.feed(" é", True)
    assert (decided, len(found)) == (5, 1)


def test_an_empty_text_is_decided(detector: Detector) -> None:
    """A text that ends without characters has no detections and is decided."""
    assert detector.stream().feed("", True) == (0, [])


@given(pieces=st.lists(st.text("abé ", max_size=6), min_size=1, max_size=8))
def test_a_stream_has_the_detections_of_the_whole_text(detector: Detector, pieces: list[str]) -> None:
    """For every split, the detections are those of the whole text, each once. None begins in text that was already
    decided.
    """
    stream, found, decided = detector.stream(), [], 0
    for index, piece in enumerate(pieces):
        before = decided
        decided, detections = stream.feed(piece, index == len(pieces) - 1)
        assert before <= decided <= len("".join(pieces[: index + 1]))
        assert all(detection.start is not None and detection.start >= before for detection in detections)
        found += detections
    assert decided == len("".join(pieces))
    assert found == detector.detect("".join(pieces))


def test_a_detector_of_whole_texts_holds_within_its_limit() -> None:
    """A detector of whole texts holds back the whole text. If the text is too long, the detector fails."""
    stream = ScriptedDetector("x").stream()
    assert stream.feed("a" * WHOLE_TEXT_LIMIT, False) == (0, [])
    with pytest.raises(DetectorFailed, match="more than 49152"):
        stream.feed("a", False)


def test_the_fake_fails_as_configured() -> None:
    """The fake fails with the port's error, and can give detections without a span."""
    with pytest.raises(DetectorFailed):
        ScriptedDetector("x", poison="p").detect("a p")
    assert ScriptedDetector("x", spans=False).detect("x")[0].start is None
