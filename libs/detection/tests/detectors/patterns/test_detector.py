"""detectors.patterns.detector: a growing text has the findings of the whole text, and little text is held back."""

import itertools
import re

import pytest
from detection.detectors.patterns.detector import PatternDetector
from detection.detectors.patterns.engine import Unsupported
from detection.detectors.patterns.matching import Limits, Matcher, Pattern
from detection.detectors.port import DetectorFailed
from detection.domain import Detection
from hypothesis import example, given
from hypothesis import strategies as st

_ATOMS = ["a", "b", ".", "[ab]", "[^a]", "é", r"\x{e9}", r"\Qab\E", r"\w", "[[:alpha:]]"]
_ASSERTIONS = [r"\b", r"\B", "^", "$", "(?m:^)", "(?m:$)", r"\A", r"\z"]
_QUANTIFIERS = ["*", "+", "?", "{2}", "{1,2}", "{0,2}", "{2,}", "*?", "+?", "??", "{1,2}?"]


def _expressions(atoms: list[str]) -> st.SearchStrategy[str]:
    return st.recursive(
        st.sampled_from(atoms),
        lambda inner: st.one_of(
            st.tuples(inner, inner).map("".join),
            st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
            inner.map(lambda one: f"({one})"),
            inner.map(lambda one: f"(?i:{one})"),
            inner.map(lambda one: f"(?s:{one})"),
            st.tuples(inner, st.sampled_from(_QUANTIFIERS)).map(lambda two: f"(?:{two[0]}){two[1]}"),
        ),
        max_leaves=6,
    ).filter(_usable)


def _usable(expression: str) -> bool:
    try:
        return not Matcher(Pattern("t", "n", expression)).matches_empty()
    except Unsupported:
        return False


def _detector(expressions: list[str], overlapping: bool = False, limits: Limits | None = None) -> PatternDetector:
    patterns = [Pattern("t", str(at), each, overlapping=overlapping) for at, each in enumerate(expressions)]
    limits = limits or Limits(seconds=60)  # a busy machine may stop a test for a second
    return PatternDetector([Matcher(pattern) for pattern in patterns], limits)


def _key(detection: Detection) -> tuple[int, int, str]:
    assert detection.start is not None
    assert detection.end is not None
    return detection.start, detection.end, detection.name


_READ_DIFFERENTLY = "\u200b\uff41\u0332\u0301\ufb00\u2013"  # nothing, a, marks, ff, a dash
_TEXTS = st.text("abBé \n" + _READ_DIFFERENTLY, max_size=12)


@given(
    st.lists(_expressions(_ATOMS + _ASSERTIONS), min_size=1, max_size=3),
    st.booleans(),
    st.lists(_TEXTS, min_size=1, max_size=6),
)
@example(["(?m:^)é"], True, ["b", "abé \né"])
def test_a_stream_finds_what_the_whole_text_has(
    expressions: list[str], overlapping: bool, pieces: list[str]
) -> None:
    """For every split of a text, the stream finds what the whole text has. No detection begins in decided text."""
    detector = _detector(expressions, overlapping)
    text = "".join(pieces)
    found: list[tuple[int, int, str]] = []
    stream, decided, length = detector.stream(), 0, 0
    for index, piece in enumerate(pieces):
        length += len(piece)
        before = decided
        decided, detections = stream.feed(piece, index == len(pieces) - 1)
        assert before <= decided <= length
        for detection in detections:
            start, end, _ = _key(detection)
            assert start >= before
            assert detection.text == text[start:end]
        found += map(_key, detections)
    assert decided == len(text)
    assert sorted(found) == sorted(map(_key, detector.detect(text)))


# Random sequences of these tokens cover RE2's syntax with its special cases, and much that RE2 refuses.
_TOKENS = re.findall(
    r"\S+",
    r"""
    a b é 1 , - # . 🔑 \. \- \x61 \x{62} \141 \n \x{1F511} \d \W \pL \PL \p{Lu} \p{^Lu} \Q \E \Qa{\E
    [a a] []a] [^]a] [a-b] [a\]b] [[:alpha:]] [[:^alpha:]b] [{] { } \{ a{ {2 {,2} {01} {1} {1,} * + ? ??
    ( ) | (?: (?i) (?i: (?m) (?s) (?U) (?P<x> (?<y> ^ $ \b \B \A \z
    """,
)


@given(
    st.lists(st.sampled_from(_TOKENS), min_size=1, max_size=7).map("".join).filter(_usable),
    st.text("abAé{}]1,2\n 🔑.0-EQ\\", max_size=9),
)
def test_a_stream_interprets_patterns_as_re2_does(expression: str, text: str) -> None:
    """A stream of single characters interprets every pattern as RE2 interprets it for the whole text."""
    detector = _detector([expression])
    stream, found, decided = detector.stream(), [], 0
    for character in (*text, ""):
        before = decided
        decided, detections = stream.feed(character, character == "")
        assert all(_key(detection)[0] >= before for detection in detections)
        found += detections
    assert found == detector.detect(text)


def _uncertain(
    detector: PatternDetector, text: str, further: int, letters: str = "abé "
) -> tuple[set[tuple[int, int, str]], int]:
    """Return the certain detections and the start of the first uncertain one, found by trying all continuations."""
    futures = [
        set(map(_key, detector.detect(text + "".join(more))))
        for length in range(further + 1)
        for more in itertools.product(letters, repeat=length)
    ]
    certain = set.intersection(*futures)
    return certain, min([len(text), *(start for start, _, _ in set.union(*futures) - certain)])


@given(_expressions(_ATOMS + _ASSERTIONS), st.booleans(), st.text("abé " + _READ_DIFFERENTLY, max_size=6))
def test_nothing_uncertain_is_decided(expression: str, overlapping: bool, text: str) -> None:
    """For every continuation, only detections that were already reported begin in decided text."""
    detector = _detector([expression], overlapping)
    stream, reported, decided = detector.stream(), set(), 0
    for character in text:
        decided, detections = stream.feed(character, False)
        reported |= set(map(_key, detections))
    certain, uncertain = _uncertain(detector, text, 2, "abé " + _READ_DIFFERENTLY)
    assert reported <= certain
    assert decided <= uncertain


_SHORT = (
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "[ab]", "[^a]", "é"]), st.sampled_from(["", "?", "{1,2}", "??"])).map(
            "".join
        ),
        min_size=1,
        max_size=2,
    )
    .map("".join)
    .filter(_usable)
)


@given(st.lists(_SHORT, min_size=1, max_size=2).map("|".join), st.text("abé ", max_size=6))
def test_nothing_certain_is_held(expression: str, text: str) -> None:
    """For patterns without assertions, the held text is exactly the text that can still become part of a new
    detection.
    """
    detector = _detector([expression])
    stream, decided = detector.stream(), 0
    for character in text:
        decided, _ = stream.feed(character, False)
    assert decided == _uncertain(detector, text, 4)[1]


def test_offsets_are_code_points() -> None:
    """Emoji, combining marks and Chinese characters count as code points, in whole and in growing texts."""
    detector = _detector([r"\d{3}-\d{2}"])
    text = "👩‍🚀 é 数据 123-45 👍"
    whole = detector.detect(text)
    start = text.index("123")
    assert [(detection.start, detection.end, detection.text) for detection in whole] == [
        (start, start + 6, "123-45")
    ]
    stream = detector.stream()
    steps = [stream.feed(character, False) for character in text]
    assert [detection for _, detections in steps for detection in detections] == whole
    assert [decided for decided, _ in steps][start - 1 : start + 7] == [
        start,
        *[start] * 5,
        start + 6,
        start + 7,
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x \uff11\uff12\uff13-45", "\uff11\uff12\uff13-45"),  # full width
        ("x 1\u200b2\u200d\ufeff3-4\u00ad5.", "1\u200b2\u200d\ufeff3-4\u00ad5"),  # without a width
        ("1\u03322\u0332\u20dd3-45", "1\u03322\u0332\u20dd3-45"),  # combining marks
        ("1\ufe0f\u20e32\ufe0f\u20e33-45", "1\ufe0f\u20e32\ufe0f\u20e33-45"),  # key caps
        *[(f"é 123{dash}45 é", f"123{dash}45") for dash in "\u2010\u2011\u2012\u2013\u2014\u2212\ufe63\uff0d"],
        *[(f"123{space}45", f"123{space}45") for space in "\u00a0\u2007\u2009\u202f\u3000"],
        *[(f"123{dot}45", f"123{dot}45") for dot in "\u00b7\u2024\u2022\u2219\uff0e"],
        ("²123-45", "123-45"),  # in the text itself; in the view a digit is before it
    ],
)
def test_look_alike_text_is_found(text: str, found: str) -> None:
    """Spans refer to the original text, whole or in single characters. No character of a detection is cleared too
    early.
    """
    detector = _detector([r"\b\d{3}[-. ]\d{2}\b"])
    start = text.index(found)
    assert [_key(detection) for detection in detector.detect(text)] == [(start, start + len(found), "0")]
    assert [detection.text for detection in detector.detect(text)] == [found]
    stream, detections = detector.stream(), []
    for character in (*text, ""):
        decided, more = stream.feed(character, character == "")
        detections += more
        assert detections or decided <= start
    assert detections == detector.detect(text)


def test_both_spellings_of_a_letter_are_found() -> None:
    """A letter with a mark is found as one character and as two, both in named patterns and in quoted text."""
    for expression in ("caf\u00e9", "\\Qcaf\u00e9\\E", "cafe?\u00e9"):
        detector = _detector([expression])
        assert [detection.text for detection in detector.detect("caf\u00e9 cafe\u0301 cafe")] == [
            "caf\u00e9",
            "cafe\u0301",
        ]


def test_a_match_that_only_the_original_text_has_is_found() -> None:
    """A match of the original text is found, even if the view of the text does not contain it."""
    assert [detection.text for detection in _detector(["\u2013|\u200b+"]).detect("a\u2013b\u200b\u200bc")] == [
        "\u2013",
        "\u200b\u200b",
    ]


def test_invisible_text_has_the_hold_back_limit() -> None:
    """Text without width is held only where it may be inside a match. Beyond the limit the detector fails."""
    run = "\u200b" * 150
    stream = _detector(["ab"], limits=Limits(held_back=100)).stream()
    assert stream.feed("x" + run, False)[0] == 151
    assert stream.feed("a" + run, False)[0] == 151
    with pytest.raises(DetectorFailed, match="more than 100 characters"):
        stream.feed("b", False)


def test_only_a_different_view_needs_a_second_search() -> None:
    """The second search, in the view, ends as soon as both searches find the same matches again."""
    stream = _detector([r"\d{3}-\d{2}"]).stream()
    has_second_search = []
    for character in "123\u201145 é\u2013 x":
        stream.feed(character, False)
        has_second_search.append(stream._view_search is not None)  # type: ignore[attr-defined]  # the cost that is tested
    assert "".join("x" if searched else "." for searched in has_second_search) == "...xxx..x.."


def test_whole_texts_longer_than_a_slice() -> None:
    """A detection on the edge of two slices of a long text is found and reported in order."""
    detector = _detector(["12+3", "b"])
    text = "a" * 65_530 + "1" + "2" * 20 + "3" + "b" + "a" * 70_000 + "123"
    assert [detection.text for detection in detector.detect(text)] == ["1" + "2" * 20 + "3", "b", "123"]


def test_the_hold_back_limit_is_a_failure() -> None:
    """A detector that would have to hold more than its limit fails, and no more text is decided."""
    stream = _detector(["a.*z"], limits=Limits(held_back=100)).stream()
    assert stream.feed("xa" + "b" * 200, False) == (1, [])
    with pytest.raises(DetectorFailed, match="more than 100 characters"):
        stream.feed("b", False)


def test_the_hold_back_limit_hides_no_detection() -> None:
    """If one pattern holds much text, the detections of other patterns in it are reported before the failure."""
    stream = _detector(["a(?s:.)*z", "secret"], limits=Limits(held_back=1000)).stream()
    decided, detections = stream.feed("a secret" + "b" * 2000, False)
    assert (decided, [detection.text for detection in detections]) == (0, ["secret"])


def test_a_complete_text_meets_no_hold_back_limit() -> None:
    """The last piece decides all text, no matter how much text was held."""
    stream = _detector(["a.*z"], limits=Limits(held_back=100)).stream()
    stream.feed("a" + "b" * 200, False)
    decided, detections = stream.feed("z", True)
    assert (decided, len(detections)) == (202, 1)


def test_time_is_limited() -> None:
    """If a text takes longer than the limit, the detector fails."""
    detector = _detector(["a"], limits=Limits(seconds=0.0))
    with pytest.raises(DetectorFailed, match="longer than 0 s"):
        detector.detect("a")
    with pytest.raises(DetectorFailed, match="longer than 0 s"):
        detector.stream().feed("b", False)


def test_searches_of_many_matches_are_limited() -> None:
    """The time limit ends a search of many matches, which takes quadratic time although each match takes linear
    time.
    """
    detector = _detector(["a.*b|a"], limits=Limits(detections=10**9, seconds=0.2))
    with pytest.raises(DetectorFailed, match="longer than"):
        detector.detect("a" * 500_000)


def test_too_many_detections_are_a_failure() -> None:
    """A whole text with more detections than the limit is a failure, even if no single slice has that many."""
    detector = _detector(["a{50}"], limits=Limits(detections=1400))
    with pytest.raises(DetectorFailed, match="more than 1400 spans"):
        detector.detect("a" * 130_000)


def test_a_large_pattern_lowers_the_inline_limit() -> None:
    """The larger a caller's pattern is, the shorter are the texts that the event loop judges itself."""
    small = PatternDetector([Matcher(Pattern("t", "n", "ab", custom=True))], Limits())
    large = PatternDetector([Matcher(Pattern("t", "n", "(?:a?){500}b", custom=True))], Limits())
    assert small.inline_limit == 16_384
    assert large.inline_limit < 10_000


def test_the_state_of_a_stream_does_not_grow() -> None:
    """The state of a stream is the held text and one character. Earlier text is not part of it."""
    stream = _detector(["secret"]).stream()
    held = []
    for _ in range(1000):
        stream.feed("some clean words ", False)
        held.append(len(stream._search._text))  # type: ignore[attr-defined]  # the bound that is tested
    assert set(held) == {1}
