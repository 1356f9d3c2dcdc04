"""Vectors for callers without an embedding model."""

import pytest
from causeway_testing.embedding import HashingEmbedder
from embedding.errors import UnembeddableText
from embedding.models import EmbeddingModel, EmbeddingModels
from retriever.embedding.text_vectors import Embeddings
from servicekit.errors import InvalidRequest, NotFound, PayloadTooLarge


async def test_vectors_and_counts() -> None:
    """Each text has the model's vector, its number of tokens, and the number of embedded tokens."""
    small, large = HashingEmbedder(8, max_tokens=20), HashingEmbedder(16)
    embeddings = Embeddings(
        EmbeddingModels([EmbeddingModel.of(small, "query: ", "passage: "), EmbeddingModel.of(large)])
    )
    long = " ".join(f"word{number}" for number in range(25))
    embedded = await embeddings.embed("", [long, "one"])
    assert embedded.model == small.model
    assert [(vector.tokens, vector.embedded_tokens) for vector in embedded.vectors] == [(25, 20), (1, 1)]
    assert [list(vector.vector) for vector in embedded.vectors] == (
        await small.embed([" ".join(long.split()[:20]), "one"])
    ).tolist()
    assert len((await embeddings.embed(large.model, ["one"])).vectors[0].vector) == 16
    assert [model.model for model in embeddings.models] == [small.model, large.model]


async def test_invalid_requests_are_refused() -> None:
    """A request with no, too many, too long or blank texts, or with an unknown model, is refused. The error names
    the field or the model.
    """
    embeddings = Embeddings(EmbeddingModels([EmbeddingModel.of(HashingEmbedder(8))]))
    for texts, error, field in (
        ([], InvalidRequest, "texts"),
        (["x"] * 257, InvalidRequest, "texts"),
        (["x", "y" * 100_001], PayloadTooLarge, "texts[1]"),
        (["y" * 90_000] * 12, PayloadTooLarge, "texts"),
        (["x", " "], UnembeddableText, "texts[1]"),
        (["x", ""], UnembeddableText, "texts[1]"),
    ):
        with pytest.raises(error) as caught:
            await embeddings.embed("", texts)
        assert caught.value.field == field
    with pytest.raises(NotFound, match="text-embedding-3"):
        await embeddings.embed("text-embedding-3", ["x"])
