"""servicekit.openai_tokens: tokens of texts of any length."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servicekit.openai_tokens import count, encoding, pieces

PROSE = (
    " A booking may be moved to another sailing free of charge up to two hours before departure, as often as you "
    "like. After that a change costs £8 for a vehicle and nothing for a foot passenger."
)
LETTERS = (
    "a",
    "Word",
    "naïve",
    "It's",
    "they'll",
    "x_y",
    "3.14",
    "1234567",
    "漢字",
    "한국",
    "e\u0301te",
    "<|endoftext|>",
)
OTHERS = ("\n", "\n\n", "  ", " ", "\t", ". ", ", ", "!!\n", "/", "'", "-", "。", "🙂", "\r\n", "\u00a0", "\u200b")
WORDS = st.sampled_from(LETTERS + OTHERS)


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
@given(parts=st.lists(WORDS, max_size=60), max_characters=st.integers(20, 60))
def test_pieces_have_the_tokens_of_the_whole(name: str, parts: list[str], max_characters: int) -> None:
    """The pieces of a text have as many tokens as the whole. A cut within a run may add some."""
    text = "".join(parts)
    cut = list(pieces(text, max_characters))
    assert "".join(cut) == text
    assert all(len(piece) <= max_characters for piece in cut)
    encode = encoding(name).encode_ordinary
    hard = sum(1 for left in cut[:-1] if len(left) == max_characters)
    difference = sum(len(encode(piece)) for piece in cut) - len(encode(text))
    assert abs(difference) <= 2 * hard


@pytest.mark.parametrize("text", [PROSE * 6000, "zeile\n" * 100_000, "漢字、" * 60_000])
def test_a_long_text_is_counted_as_its_parts(text: str) -> None:
    """The count of a long text is the sum of its parts' counts."""
    half = len(text) // 2
    assert count("o200k_base", text) == count("o200k_base", text[:half]) + count("o200k_base", text[half:])


def test_a_long_run_is_counted() -> None:
    """A long run without a place to cut is counted, even with characters of several tokens."""
    assert count("o200k_base", "x" * 700_000) > 0
    assert count("o200k_base", "\U00013000" * 150_000) > 150_000


def test_counting_is_fast() -> None:
    """The tokenizer counts at least four megabytes in a CPU second (25 on a free core)."""
    count("o200k_base", "warm")
    text = PROSE * 10_000
    start = time.process_time()
    count("o200k_base", text)
    assert len(text) / (time.process_time() - start) > 4_000_000
