"""Counting tokens."""

import time

import pytest
from generator.domain import ChatMessage
from generator.tokens import EstimatedTokens, OpenAITokens, counter_for
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
def test_estimates_are_near(text: str, encoding: str) -> None:
    """For English, code and tables, within a quarter of OpenAI's count."""
    exact, estimate = OpenAITokens(encoding).count(text), EstimatedTokens().count(text)
    assert 0.8 * exact <= estimate <= 1.25 * exact


@given(st.text(), st.text())
def test_estimates_grow_with_the_text(left: str, right: str) -> None:
    """Any text can be counted, lone surrogates too; more of it is not fewer tokens."""
    counter = EstimatedTokens()
    assert counter.count(left) <= counter.count(left + right) <= counter.count(left) + counter.count(right)


def test_known_tokens_are_counted_exactly() -> None:
    """Counts that OpenAI's tokenizer page shows; what looks like a special token is text."""
    counter = OpenAITokens("cl100k_base")
    assert counter.count("tiktoken is great!") == 6
    assert counter.count("") == 0
    assert counter.count("<|endoftext|>") > 1


def test_long_texts_are_counted_in_pieces() -> None:
    """Beyond what the tokenizer takes at once, with the same result, and fast."""
    counter = OpenAITokens("o200k_base")
    once = counter.count(" " + PROSE)
    text = (" " + PROSE) * 6000  # 1.5 million characters
    start = time.process_time()
    count = counter.count(text)
    assert abs(count - once * 6000) <= len(text) / 50_000
    assert time.process_time() - start < 5
    assert counter.count("x" * 300_000) > 0


@pytest.mark.parametrize(
    ("model", "exact"),
    [
        ("gpt-4o-mini-2024-07-18", True),
        ("gpt-4.1", True),
        ("gpt-3.5-turbo", True),
        ("o3-mini", True),
        ("meta-llama/Llama-3.1-8B", False),
        ("stub", False),
    ],
)
def test_the_tokenizer_goes_by_the_models_name(model: str, exact: bool) -> None:
    """OpenAI's models are counted with theirs; others are estimated, and say so."""
    assert counter_for(model).exact is exact


def test_a_conversation_counts_its_texts_and_its_template() -> None:
    """Four tokens a message, three for the answer's beginning; names, calls and pictures count too."""
    counter = OpenAITokens("cl100k_base")
    assert counter.count_messages([ChatMessage("user", "tiktoken is great!")]) == 3 + 4 + 6
    parts = b'[{"type":"text","text":"tiktoken is great!"},{"type":"image_url","image_url":{}}]'
    assert counter.count_messages([ChatMessage("user", content_json=parts)]) == 3 + 4 + 6 + 765
    extra = b'{"name":"Ann"}'
    assert counter.count_messages([ChatMessage("user", "a", extra_json=extra)]) == 3 + 4 + 1 + counter.count(
        extra.decode()
    )
    assert counter.count_messages([]) == 3
