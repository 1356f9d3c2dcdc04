"""tools/plain_language.py: the number of listed words may not increase."""

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
    """Listed words are found in upper and lower case, and phrases with any white space. Parts of other words are
    not.
    """
    assert list(plain_language.words(line)) == found


def test_a_higher_count_is_a_problem() -> None:
    """A count that is higher than in the baseline is reported, with the count and with advice."""
    [message] = plain_language.problems(Counter(nobody=3, stands=1), {"nobody": 2, "stands": 4})
    assert "`nobody` is in the text 3 times, 1 more than before" in message
    assert plain_language.ADVICE["nobody"] in message


def test_an_equal_or_lower_count_is_no_problem() -> None:
    """A count that is equal to the baseline or lower is not reported."""
    assert plain_language.problems(Counter(nobody=2), {"nobody": 2, "stands": 4}) == []
