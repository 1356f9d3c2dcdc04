"""detection.detectors.patterns.engine: RE2 as the detectors use it."""

import pytest
from detection.detectors.patterns.engine import Regex, Unsupported

_MEMORY = 1 << 20


def test_search_sees_what_is_before_the_start() -> None:
    r"""Positions are bytes. `\b` and `^` look at the text before the start of the search."""
    assert Regex(r"\bfoo", memory=_MEMORY).search(b"xfoo foo", 1) == (5, 8)
    assert Regex("^foo", memory=_MEMORY).search(b"xfoo", 1) == (-1, -1)
    assert Regex("ö", memory=_MEMORY).search("aöb".encode(), 0) == (1, 3)


def test_group_at_returns_the_first_group() -> None:
    """`group_at` returns the first group of the match that begins exactly at the position."""
    regex = Regex("(a+)(?:b|$)", memory=_MEMORY, group=True)
    assert regex.group_at(b"xaab", 1) == (1, 3)


@pytest.mark.parametrize("pattern", [r"(?=a)", r"(a)\1", "(", "a{2000}", r"[\pL\pN]{1,900}"])
def test_an_unsupported_pattern_is_refused(pattern: str) -> None:
    """A pattern that RE2 does not support, or that needs too much memory, is refused with a reason."""
    with pytest.raises(Unsupported, match=r"\w"):
        Regex(pattern, memory=_MEMORY)


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a*", True),
        (r"\b", True),
        (r"^\b|a", True),
        ("(?m)$", True),
        ("a?b?", True),
        ("a+", False),
        (r"\ba", False),
    ],
)
def test_the_engine_knows_which_patterns_match_the_empty_text(pattern: str, expected: bool) -> None:
    """Whether a pattern matches the empty text depends on the neighbours, so all kinds of neighbours are tried."""
    assert Regex(pattern, memory=_MEMORY).matches_empty() is expected


def test_time_is_linear() -> None:
    """A search for a pattern that takes exponential time in backtracking engines ends."""
    regex = Regex("(a+)+$", memory=_MEMORY)
    text = b"a" * 100_000 + b"b"
    assert regex.search(text, 0) == (-1, -1)
