"""OpenAI's tokenizers."""

import time

import pytest
from generator.domain import ChatMessage
from generator.tokenizers.openai import ENCODINGS, OpenAITokens, _encoding, encoding_of, pieces
from hypothesis import given
from hypothesis import strategies as st

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


def test_known_tokens_are_counted_exactly() -> None:
    """The counts are those of OpenAI's tokenizer page. A special token in a text is counted as characters."""
    counter = OpenAITokens("cl100k_base")
    assert counter.count("tiktoken is great!") == 6
    assert counter.count("") == 0
    assert counter.count("<|endoftext|>") > 1


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(parts=st.lists(WORDS, max_size=60), most=st.integers(20, 60))
def test_pieces_have_the_tokens_of_the_whole(encoding: str, parts: list[str], most: int) -> None:
    """The pieces of a text have as many tokens as the whole. A cut within a run may add some."""
    text = "".join(parts)
    cut = list(pieces(text, most))
    assert "".join(cut) == text
    assert all(len(piece) <= most for piece in cut)
    count = _encoding(encoding).encode_ordinary
    hard = sum(1 for left in cut[:-1] if len(left) == most)
    difference = sum(len(count(piece)) for piece in cut) - len(count(text))
    assert abs(difference) <= 2 * hard


@pytest.mark.parametrize("text", [PROSE * 6000, "zeile\n" * 100_000, "漢字、" * 60_000])
def test_a_long_text_is_counted_as_its_parts(text: str) -> None:
    """The count of a long text is the sum of its parts' counts."""
    counter = OpenAITokens("o200k_base")
    half = len(text) // 2
    assert counter.count(text) == counter.count(text[:half]) + counter.count(text[half:])


def test_a_long_run_is_counted() -> None:
    """A long run without a place to cut is counted, even with characters of several tokens."""
    counter = OpenAITokens("o200k_base")
    assert counter.count("x" * 700_000) > 0
    assert counter.count("\U00013000" * 150_000) > 150_000


def test_counting_is_fast() -> None:
    """The tokenizer counts at least four megabytes in a CPU second (25 on a free core)."""
    counter = OpenAITokens("o200k_base")
    counter.count("warm")
    text = PROSE * 10_000
    start = time.process_time()
    counter.count(text)
    assert len(text) / (time.process_time() - start) > 4_000_000


def test_the_models_name_selects_the_encoding() -> None:
    """A model of OpenAI has its encoding by its name, and any other model has none."""
    assert encoding_of("gpt-4o-mini-2024-07-18") == encoding_of("o3-mini") == encoding_of("gpt-4.1") == "o200k_base"
    assert encoding_of("gpt-3.5-turbo") == encoding_of("gpt-4") == "cl100k_base"
    assert encoding_of("meta-llama/Llama-3.1-8B") is None


def test_a_conversation_counts_its_texts_and_its_template() -> None:
    """A message adds four tokens and the answer three. Names and pictures count too."""
    counter = OpenAITokens("cl100k_base")
    assert counter.count_messages([ChatMessage("user", "tiktoken is great!")]) == 3 + 4 + 6
    parts = b'[{"type":"text","text":"tiktoken is great!"},{"type":"image_url","image_url":{}}]'
    assert counter.count_messages([ChatMessage("user", content_json=parts)]) == 3 + 4 + 6 + 765
    extra = b'{"name":"Ann"}'
    assert counter.count_messages([ChatMessage("user", "a", extra_json=extra)]) == 3 + 4 + 1 + counter.count(
        extra.decode()
    )
    assert counter.count_messages([]) == 3
