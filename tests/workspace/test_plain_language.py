"""tools/plain_language.py: the number of listed words may only fall."""

from collections import Counter

import plain_language
import pytest


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("Whoever asks, and nobody else", ["whoever", "nobody"]),
        ("There  are none of these.", ["there are none"]),
        ("standstill, understands, body", []),
    ],
)
def test_words_are_found(line: str, found: list[str]) -> None:
    """Whole words are found in any case and over any white space. Parts of other words are not."""
    assert list(plain_language.words(line)) == found


def test_a_higher_count_is_a_problem() -> None:
    """A higher count than the baseline is reported with the number and the advice."""
    [message] = plain_language.problems(Counter(nobody=3, stands=1), {"nobody": 2, "stands": 4})
    assert "`nobody` is in the text 3 times, 1 more than before" in message
    assert plain_language.ADVICE["nobody"] in message


def test_an_equal_or_lower_count_is_none() -> None:
    """An equal or lower count is no problem."""
    assert plain_language.problems(Counter(nobody=2), {"nobody": 2, "stands": 4}) == []
