"""The unigram tokenizer; its contract is in test_port.py."""

import json
from pathlib import Path

import pytest
from embedding.sentence_pieces import SentencePieceTokenizer, write_model

PIECES = ["<s>", "<pad>", "</s>", "<unk>", "\u2581", "\u2581fer", "ry", "\u2581quay", "s", "<mask>"]


@pytest.fixture
def tokenizer(tmp_path: Path) -> SentencePieceTokenizer:
    """Return a tokenizer of a few pieces."""
    described = {
        "added_tokens": [{"content": piece} for piece in ("<s>", "<pad>", "</s>", "<unk>", "<mask>")],
        "normalizer": {"normalizers": [{"precompiled_charsmap": ""}]},
        "model": {"vocab": [[piece, -float(at)] for at, piece in enumerate(PIECES)]},
    }
    write_model(json.dumps(described).encode(), tmp_path / "tokenizer.model")
    return SentencePieceTokenizer(tmp_path / "tokenizer.model")


def test_each_piece_has_its_span_in_the_text(tokenizer: SentencePieceTokenizer) -> None:
    """Each piece has its place in the text, without the space before it."""
    assert tokenizer.spans("ferry quays") == [(0, 3), (3, 5), (6, 10), (10, 11)]
    assert tokenizer.count("ferry quays") == 4


def test_the_input_has_special_tokens_at_both_ends(tokenizer: SentencePieceTokenizer) -> None:
    """The special tokens are at both ends of a text of any length."""
    assert tokenizer.sequence("ferry quays", 512).tolist() == [0, 5, 6, 7, 8, 2]
    assert tokenizer.sequence("ferry quays", 4).tolist() == [0, 5, 6, 2]
    assert tokenizer.sequence("", 512).tolist() == [0, 2]


def test_special_tokens_in_a_text_are_text(tokenizer: SentencePieceTokenizer) -> None:
    """Special tokens in a text become unknown pieces and do not end the text."""
    assert set(tokenizer.sequence("</s><mask>", 512).tolist()[1:-1]).isdisjoint({0, 2, 9})
