"""detection.detectors.ban_substrings: forbidden phrases."""

import json

import pytest
from causeway_testing.guardrails.detectors import quick
from detection.detectors.ban_substrings import ban_substrings
from detection.detectors.params import BadParam
from detection.detectors.patterns.matching import Limits
from detection.detectors.port import Detector
from hypothesis import given
from hypothesis import strategies as st

_KIND = ban_substrings(Limits())


def _make(substrings: list[str], **params: object) -> Detector:
    return quick(_KIND, substrings=substrings, **params)


def _found(text: str, substrings: list[str], **params: object) -> list[str]:
    return [detection.text for detection in _make(substrings, **params).detect(text)]


def test_the_characters_of_a_phrase_have_no_special_meaning() -> None:
    """The characters of a phrase have no special meaning. Case matters only if the parameters say so."""
    found = _make(["a.c(", "Größe"]).detect("abc( A.C( GRÖSSE größe")
    assert [(detection.type, detection.name, detection.text) for detection in found] == [
        ("banned", "banned_substring", "A.C("),
        ("banned", "banned_substring", "größe"),
    ]
    assert _found("Secret secret", ["secret"], case_sensitive=True) == ["secret"]


def test_overlapping_phrases_are_found() -> None:
    """Every start of a phrase is found. If several phrases begin at the same place, the finding is the longest."""
    assert _found("foo bar baz", ["foo bar", "bar baz", "foo"]) == ["foo bar", "bar baz"]
    assert _found("foobar", ["Foo", "fooBAR"]) == ["foobar"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("foo", ["foo"]),
        ("a foo.", ["foo"]),
        ("foo foo", ["foo", "foo"]),
        ("foot afoo _foo foo_ foo1", []),
        ("fooé éfoo foo\u0301", []),  # letters and marks of all scripts are parts of words
        ("foo-bar", ["foo"]),
        ("foo bat", ["foo"]),  # the longer phrase is not a whole word, but the shorter one is
        ("foo ba", ["foo ba"]),
        ("über", ["über"]),
        ("(c++)", ["c++"]),
        ("c++11", []),
    ],
)
def test_only_whole_words_are_found_on_request(text: str, found: list[str]) -> None:
    """With `word`, a phrase is found only if no letter, digit, mark or underscore is next to it."""
    assert _found(text, ["foo", "foo ba", "über", "c++"], match_type="word") == found


_WORDS = st.lists(st.text("abAé .", min_size=1, max_size=4), min_size=1, max_size=5)


@given(_WORDS, st.text("abAé .", max_size=12))
def test_no_phrase_is_missed(substrings: list[str], text: str) -> None:
    """Each character of each occurrence of a phrase is in a detection, and each detection is a phrase."""
    detections = _make(substrings, case_sensitive=True).detect(text)
    covered = {at for detection in detections for at in range(detection.start or 0, detection.end or 0)}
    for phrase in substrings:
        for start in range(len(text)):
            if text.startswith(phrase, start):
                assert covered.issuperset(range(start, start + len(phrase)))
    assert {detection.text for detection in detections} <= set(substrings)


@given(_WORDS, st.booleans(), st.sampled_from(["str", "word"]), st.lists(st.text("abAé .", max_size=5), min_size=1))
def test_a_stream_has_the_detections_of_the_whole_text(
    substrings: list[str], case_sensitive: bool, match_type: str, pieces: list[str]
) -> None:
    """For every split of a text, the detections are those of the whole text. None begins in decided text."""
    detector = _make(substrings, case_sensitive=case_sensitive, match_type=match_type)
    stream, found, decided = detector.stream(), [], 0
    for index, piece in enumerate(pieces):
        before = decided
        decided, detections = stream.feed(piece, index == len(pieces) - 1)
        assert all(detection.start is not None and detection.start >= before for detection in detections)
        found += detections
    assert decided == len("".join(pieces))
    assert found == detector.detect("".join(pieces))


@given(_WORDS, st.text("abAé .", max_size=10))
def test_only_a_possible_beginning_of_a_phrase_is_held(substrings: list[str], text: str) -> None:
    """The held text is exactly the text that can still be the beginning of a phrase."""
    stream, decided = _make(substrings, case_sensitive=True).stream(), 0
    for character in text:
        decided, _ = stream.feed(character, False)
    can_grow = [
        start
        for start in range(len(text))
        if any(phrase.startswith(text[start:]) and phrase != text[start:] for phrase in substrings)
    ]
    assert decided == min(can_grow, default=len(text))


def test_a_long_list_becomes_one_pattern() -> None:
    """A list of a thousand phrases becomes one pattern."""
    words = [f"phrase number {index}" for index in range(1000)]
    assert _found("my phrase number 999!", words) == ["phrase number 999"]


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"substrings": []}, "substrings"),
        ({"substrings": ["a" * 500 + str(index) for index in range(100)]}, "substrings[0]"),
        ({"substrings": ["a" * 400 + str(index) for index in range(100)]}, "substrings"),
        ({"substrings": ["a"], "contains_all": True}, "contains_all"),
    ],
)
def test_bad_parameters_are_refused(params: dict[str, object], path: str) -> None:
    """Empty, unbounded and misspelt parameters are refused by name."""
    with pytest.raises(BadParam) as raised:
        _KIND.make(json.dumps(params).encode())
    assert raised.value.path == path
