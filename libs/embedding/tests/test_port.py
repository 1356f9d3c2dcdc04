"""The contract of the port, for the fake, the bundled model and models of servers."""

import asyncio
import os
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from causeway_testing.embedding import HashingEmbedder, WordTokenizer
from embedding import EmbeddingConfig, create_embedder
from embedding.cache import TOKENIZER, default_cache_dir, model_directory
from embedding.e5 import E5Embedder
from embedding.errors import UnembeddableText
from embedding.minilm import MiniLmEmbedder, WordPieceTokenizer
from embedding.models import PrefixedEmbedder
from embedding.port import Embedder, Tokenizer
from embedding.tokenizer import ApproximateTokenizer
from hypothesis import given
from hypothesis import strategies as st
from servicekit.errors import Unavailable

TEXTS = [
    "The ferry to the island leaves at eight.",
    "Receipts are handed in within thirty days.",
    "ü" * 40 + " ünïcode 漢字 한국 🙂",
    "word " * 400,
]


E5 = pytest.param("e5", marks=pytest.mark.slow)
"""Needs `make multilingual`."""


@pytest.fixture(params=["fake", "minilm", E5, "openai", "triton", "prefixed"])
async def embedder(request: pytest.FixtureRequest, cache: Path) -> AsyncIterator[Embedder]:
    """Return each adapter in turn."""
    embedder = make_embedder(request, cache)
    yield embedder
    await embedder.aclose()


def make_embedder(request: pytest.FixtureRequest, cache: Path) -> Embedder:
    if request.param == "fake":
        return HashingEmbedder()
    if request.param == "prefixed":
        return PrefixedEmbedder(HashingEmbedder(), "passage: ")
    if request.param == "minilm":
        return create_embedder(EmbeddingConfig(cache_dir=cache))
    if request.param == "e5":
        return create_embedder(EmbeddingConfig("e5", cache_dir=default_cache_dir(os.environ)))
    if request.param == "openai":
        url = request.getfixturevalue("embedding_server").url
        return create_embedder(
            EmbeddingConfig("openai", address=url, model="hashing", dimension=256, max_tokens=256, batch=3)
        )
    return create_embedder(
        EmbeddingConfig(
            "triton",
            address=request.getfixturevalue("triton"),
            model="all-minilm-l6-v2",
            dimension=384,
            max_tokens=254,
            tokenizer=model_directory(cache, "int8") / TOKENIZER,
            batch=3,
        )
    )


@pytest.fixture(params=["fake", "minilm", E5, "approximate"], scope="module")
def tokenizer(request: pytest.FixtureRequest, cache: Path) -> Tokenizer:
    """Return each adapter's tokenizer in turn."""
    if request.param == "approximate":
        return ApproximateTokenizer()
    if request.param == "e5":
        return E5Embedder.load(default_cache_dir(os.environ)).tokenizer
    return WordTokenizer() if request.param == "fake" else MiniLmEmbedder.load(cache).tokenizer


async def test_vectors_have_the_promised_shape(embedder: Embedder) -> None:
    """Each text has a row of float32 numbers, with the stated dimension and length 1."""
    vectors = await embedder.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), embedder.dimension)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert embedder.model


async def test_no_texts_give_no_vectors(embedder: Embedder) -> None:
    """A call without texts returns an empty array with the right width."""
    vectors = await embedder.embed([])
    assert vectors.shape == (0, embedder.dimension)
    assert vectors.dtype == np.float32


async def test_the_same_text_has_the_same_vector(embedder: Embedder) -> None:
    """The vector has the same bits alone, beside other texts, twice in a call, and during other calls."""
    text = TEXTS[0]
    alone = (await embedder.embed([text]))[0]
    beside = await embedder.embed([*TEXTS, text])
    np.testing.assert_array_equal(beside[0], alone)
    np.testing.assert_array_equal(beside[-1], alone)
    calls = await asyncio.gather(*(embedder.embed([other, text]) for other in TEXTS * 4))
    for call in calls:
        np.testing.assert_array_equal(call[1], alone)


async def test_rows_follow_the_order_of_the_texts(embedder: Embedder) -> None:
    """Row i is the vector of text i, no matter how long each text takes."""
    texts = [TEXTS[number % len(TEXTS)] + f" {number}" for number in range(12)]
    together = await embedder.embed(texts)
    for text, row in zip(texts, together, strict=True):
        np.testing.assert_array_equal((await embedder.embed([text]))[0], row)


async def test_a_question_is_nearer_to_its_own_passage(embedder: Embedder) -> None:
    """A question is nearer to its own passage than to another passage."""
    question, answer, other = await embedder.embed(
        ["When does the ferry leave?", TEXTS[0], "Receipts are handed in within thirty days."]
    )
    assert question @ answer > question @ other + 0.1


@pytest.mark.parametrize("blank", ["", " ", "\n\t\u2003"])
async def test_a_blank_text_is_refused(embedder: Embedder, blank: str) -> None:
    """A blank text is refused with an error for clients that names the text."""
    with pytest.raises(UnembeddableText, match=r"Text 1 .*blank") as caught:
        await embedder.embed(["good", blank])
    assert caught.value.index == 1
    assert caught.value.field == "texts[1]"


async def test_a_lone_surrogate_is_refused(embedder: Embedder) -> None:
    """Half of a surrogate pair is not Unicode text, and is refused like a blank text."""
    with pytest.raises(UnembeddableText, match=r"Text 0 .*Unicode"):
        await embedder.embed(["half a \ud83d pair"])


async def test_control_characters_are_text(embedder: Embedder) -> None:
    """A text that is not blank has a vector, even if the model sees no token in it."""
    vectors = await embedder.embed(["\u200b", "\x00", "…"])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


async def test_max_tokens_counts_as_the_tokenizer_does(embedder: Embedder) -> None:
    """Exactly the first max_tokens tokens affect the vector: the last of them does, and the next token does not."""
    filled = " ".join(["sea"] * embedder.max_tokens)
    assert embedder.tokenizer.count(filled) == embedder.max_tokens
    changed = " ".join(["sea"] * (embedder.max_tokens - 1) + ["land"])
    full, longer, other = await embedder.embed([filled, filled + " land land", changed])
    np.testing.assert_array_equal(full, longer)
    assert not np.array_equal(full, other)


async def test_a_closed_embedder_is_unavailable(embedder: Embedder) -> None:
    """After closing, calls fail at once with an error that clients may retry. Closing again has no effect."""
    await embedder.aclose()
    await embedder.aclose()
    with pytest.raises(Unavailable):
        await embedder.embed(TEXTS)


@given(text=st.text())
def test_spans_are_ordered_and_within_the_text(tokenizer: Tokenizer, text: str) -> None:
    """Spans are not empty, are inside the text, and never go back. The count is their number."""
    spans = tokenizer.spans(text)
    assert tokenizer.count(text) == len(spans)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    for (start, end), (next_start, next_end) in pairwise(spans):
        assert start <= next_start
        assert end <= next_end


@given(words=st.lists(st.from_regex(r"[a-z]{1,12}", fullmatch=True), max_size=60))
def test_spans_cover_every_letter(tokenizer: Tokenizer, words: list[str]) -> None:
    """In plain words no letter is omitted or counted twice, and no span crosses a space."""
    text = "  ".join(words)
    spans = tokenizer.spans(text)
    assert "".join(text[start:end] for start, end in spans) == "".join(words)


@given(
    left=st.text(st.characters(codec="ascii", exclude_categories=["Cc"])),
    right=st.text(st.characters(codec="ascii", exclude_categories=["Cc"])),
)
def test_counts_of_texts_joined_by_white_space_add_up(tokenizer: Tokenizer, left: str, right: str) -> None:
    """The counts of texts joined by white space add up, so a chunker may add them."""
    assert tokenizer.count(f"{left}\n{right}") == tokenizer.count(left) + tokenizer.count(right)


def test_special_tokens_in_a_text_are_ordinary_text(tokenizer: Tokenizer) -> None:
    """The spelling of a special token in a document is ordinary text: its brackets and letters are tokenized."""
    text = "before [SEP] after"
    covered = "".join(text[start:end] for start, end in tokenizer.spans(text))
    assert covered == "before[SEP]after"
    if isinstance(tokenizer, WordPieceTokenizer):
        assert tokenizer.spans(text)[1] == (7, 8)


def test_a_tokenizer_refuses_lone_surrogates(tokenizer: Tokenizer) -> None:
    """A text that is not Unicode raises a ValueError, and not a library's own error."""
    with pytest.raises(ValueError, match="surrogate"):
        tokenizer.count("\udc00")
    with pytest.raises(ValueError, match="surrogate"):
        tokenizer.spans("\udc00")
