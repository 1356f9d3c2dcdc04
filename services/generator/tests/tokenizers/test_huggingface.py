"""Tokenizers in Hugging Face's format."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tokenizers
from generator.domain import ChatMessage
from generator.tokenizers.huggingface import HuggingFaceTokens
from generator.tokenizers.templates import load_template
from hypothesis import given
from hypothesis import strategies as st

MESSAGES = [ChatMessage("system", "the ferry"), ChatMessage("user", "leaves at nine")]


@pytest.fixture(scope="session")
def counter(tokenizer_directory: Path) -> HuggingFaceTokens:
    return HuggingFaceTokens(tokenizer_directory / "tokenizer.json", load_template(str(tokenizer_directory)))


def test_texts_are_counted_as_the_library_does(counter: HuggingFaceTokens, tokenizer_directory: Path) -> None:
    """The count of a text equals the library's count of the whole text, even if the file configures truncation. It
    is exact.
    """
    own = tokenizers.Tokenizer.from_file(str(tokenizer_directory / "tokenizer.json"))
    own.no_truncation()
    text = "the ferry leaves at eight, and 42 more things happen. " * 50
    assert counter.count(text) == len(own.encode(text, add_special_tokens=False).ids)
    assert counter.exact


def test_a_special_token_in_a_text_counts_as_text(counter: HuggingFaceTokens) -> None:
    """A special token in a text is counted as characters, and in a rendered conversation as one token."""
    assert counter.count("<|end|>") > 1
    # begin · (system … end) · (user … end) · assistant
    assert counter.count_messages(MESSAGES) == 6 + counter.count("the ferry") + counter.count("leaves at nine")


def test_without_a_template_openais_numbers_are_added(tokenizer_directory: Path) -> None:
    """Without a usable template, a conversation is counted with OpenAI's template."""
    plain = HuggingFaceTokens(tokenizer_directory / "tokenizer.json")
    assert plain.count_messages(MESSAGES) == 3 + 8 + plain.count("the ferry") + plain.count("leaves at nine")
    strict = HuggingFaceTokens(
        tokenizer_directory / "tokenizer.json", load_template("{{ raise_exception('no') }}{{ messages }}")
    )
    assert strict.count_messages(MESSAGES) == plain.count_messages(MESSAGES)


@given(st.text())
def test_any_text_can_be_counted(counter: HuggingFaceTokens, text: str) -> None:
    """Any text can be counted, even with lone surrogates."""
    assert counter.count(text + "\ud800") >= 1


def test_threads_can_share_a_counter(counter: HuggingFaceTokens) -> None:
    """Concurrent threads get the same counts of texts and of conversations as a single one."""
    texts = ["the ferry leaves <|end|>" * number for number in range(200)]

    def counts(text: str) -> tuple[int, int]:
        return counter.count(text), counter.count_messages([ChatMessage("user", text)])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(counts, texts)) == [counts(text) for text in texts]


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    """The error names the broken file."""
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match=r"tokenizer\.json cannot be read"):
        HuggingFaceTokens(tmp_path / "tokenizer.json")
