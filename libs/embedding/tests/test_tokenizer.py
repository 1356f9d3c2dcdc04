"""Tokenizers; their contract is in test_port.py."""

from pathlib import Path

import pytest
import tokenizers
from embedding.cache import TOKENIZER, model_directory
from embedding.tokenizer import ApproximateTokenizer, FileTokenizer


def test_the_approximation_never_counts_too_few_tokens(passages: list[str], cache: Path) -> None:
    """For a hundred English paragraphs, the approximation is never below the count of the tokenizer."""
    own, approximate = FileTokenizer(model_directory(cache, "int8") / TOKENIZER), ApproximateTokenizer()
    assert [text for text in passages if approximate.count(text) < own.count(text)] == []


def test_the_approximation_counts_each_wide_character() -> None:
    """The approximation counts each wide character as a token, because a tokenizer needs at least one for it."""
    assert ApproximateTokenizer().spans("ab漢字 12345") == [(0, 1), (1, 2), (2, 3), (3, 4), (5, 7), (7, 9), (9, 10)]


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> FileTokenizer:
    """Return a byte-level tokenizer that truncates and inserts a space at the beginning."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(
        ["a ferry"] * 5, tokenizers.trainers.BpeTrainer(vocab_size=30, show_progress=False)
    )
    tokenizer.enable_truncation(2)
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    tokenizer.save(str(path))
    return FileTokenizer(path)


def test_no_span_is_empty(byte_level: FileTokenizer) -> None:
    """An inserted space has no span, and nothing is truncated."""
    spans = byte_level.spans("a ferry a ferry a ferry")
    assert spans
    assert all(start < end for start, end in spans)
    assert spans[-1][1] == len("a ferry a ferry a ferry")
    assert byte_level.count("a ferry a ferry a ferry") == len(spans)
