"""Normalised words for the comparison of texts."""

import pytest
from generator.extractive.terms import terms, words


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("ticket", "tickets"),
        ("company", "companies"),
        ("cross", "crossing"),
        ("crossed", "Crosses"),
        ("stop", "stopped"),
        ("stopping", "stops"),
        ("charge", "charging"),
        ("charged", "charges"),
        ("insure", "insured"),
        ("watch", "watches"),
        ("captain's", "captain\u2019s"),
        ("twelve", "12"),
        ("1,050", "1050"),
        ("Straße", "STRASSE"),
    ],
)
def test_forms_of_a_word_are_equal(left: str, right: str) -> None:
    """Number, tense and spelling do not distinguish words."""
    assert words(left) == words(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("bus", "bu"),
        ("pier", "pie"),
        ("18.40", "18"),
        ("06:15", "06"),
        ("grass", "gras"),
        ("sing", "s"),
        ("red", "r"),
    ],
)
def test_other_words_are_different(left: str, right: str) -> None:
    """Different words stay different."""
    assert words(left) != words(right)


def test_stop_words_are_not_terms() -> None:
    """The terms of a question are its words without stop words."""
    assert terms("How much does it cost for me to take the dog on board?") == ["cost", "take", "dog", "board"]
    assert terms("What is this?") == []


def test_scripts_without_spaces_are_compared_by_pairs() -> None:
    """Scripts without spaces are compared by pairs of characters, so that a word within a sentence matches."""
    assert set(words("渡轮")) <= set(words("这艘渡轮每天出发"))
    assert set(words("フェリー")) <= set(words("フェリーは出る"))
    assert words("船") == ["船"]
