"""Estimates of the number of tokens."""

import pytest
from generator.tokenizers.estimate import EstimatedTokens
from generator.tokenizers.openai import OpenAITokens
from hypothesis import given
from hypothesis import strategies as st

PROSE = (
    "A booking may be moved to another sailing free of charge up to two hours before departure, as often as you "
    "like. After that a change costs £8 for a vehicle and nothing for a foot passenger. The name on a ticket may "
    "be changed at any time before check-in."
)
CODE = "def total(prices: list[float]) -> float:\n    return sum(price * 1.2 for price in prices if price > 0)\n"
TABLE = "| Adult | 18.40 | 7.20 | 4.10 |\n| Child | 9.20 | 3.60 | 2.05 |\n"


@pytest.mark.parametrize("text", [PROSE, CODE, TABLE])
@pytest.mark.parametrize("encoding", ["cl100k_base", "o200k_base"])
def test_estimates_are_close_to_openais_counts(text: str, encoding: str) -> None:
    """An estimate of English, code or a table is within a quarter of OpenAI's count."""
    exact, estimate = OpenAITokens(encoding).count(text), EstimatedTokens().count(text)
    assert 0.8 * exact <= estimate <= 1.25 * exact


@given(st.text(), st.text())
def test_estimates_grow_with_the_text(left: str, right: str) -> None:
    """A longer text has at least as many tokens, even with lone surrogates."""
    counter = EstimatedTokens()
    assert counter.count(left) <= counter.count(left + right) <= counter.count(left) + counter.count(right)
