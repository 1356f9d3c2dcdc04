"""Vectors of queries: each model embeds a query once while its vector is cached."""

from collections.abc import Sequence

import pytest
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.retriever.recording_embedder import RecordingEmbedder
from embedding.models import EmbeddingModel, EmbeddingModels
from retriever.domain.index import IndexSpec
from retriever.embedding.query_vectors import QueryVectors, Vectors
from servicekit.errors import Unavailable


def specs(*embedders: RecordingEmbedder) -> list[IndexSpec]:
    """Return the spec of an index for each model."""
    return [
        IndexSpec("local", f"of-{embedder.model}", embedder.model, embedder.dimension) for embedder in embedders
    ]


def numbers(vectors: Vectors) -> list[Sequence[float]]:
    """Return the numbers of the vectors."""
    return [vector.numbers for vector in vectors.values()]


async def test_a_repeated_query_is_embedded_once() -> None:
    """Each model embeds a repeated query once. Another query and another model have their own vectors."""
    small, large = RecordingEmbedder(8), RecordingEmbedder(16)
    vectors = QueryVectors(EmbeddingModels([EmbeddingModel.of(small), EmbeddingModel.of(large)]))
    first = await vectors.embed("ferry", specs(small))
    both = await vectors.embed("ferry", specs(small, large))
    assert numbers(await vectors.embed("ferry", specs(small, large))) == numbers(both)
    assert numbers(both)[0] == numbers(first)[0] == (await HashingEmbedder(8).embed(["ferry"]))[0].tolist()
    assert numbers(await vectors.embed_if_available("bridge", specs(small))) != numbers(first)
    assert (small.embedded, large.embedded) == (["ferry", "bridge"], ["ferry"])


async def test_a_failure_is_not_cached() -> None:
    """A failure is not cached: the next search calls the model again."""
    embedder = RecordingEmbedder(8)
    vectors = QueryVectors(EmbeddingModels([EmbeddingModel.of(embedder)]))
    embedder.failure = Unavailable("The embedding server of 'm' cannot be reached.")
    with pytest.raises(Unavailable, match="'m'"):
        await vectors.embed("ferry", specs(embedder))
    embedder.failure = None
    assert len(await vectors.embed("ferry", specs(embedder))) == 1
    assert embedder.embedded == ["ferry", "ferry"]


async def test_the_cache_is_bounded_in_bytes() -> None:
    """The cache drops the least recently used query, and does not keep a query that is too large for it."""
    embedder = RecordingEmbedder(8)
    vectors = QueryVectors(EmbeddingModels([EmbeddingModel.of(embedder)]), max_bytes=600)
    for query in ("ferry", "bridge", "ferry", "pier", "ferry", "bridge"):
        await vectors.embed(query, specs(embedder))
    assert embedder.embedded == ["ferry", "bridge", "pier", "bridge"]
    embedder.embedded.clear()
    for query in ("ferry " * 100, "ferry " * 100):
        await vectors.embed(query, specs(embedder))
    assert len(embedder.embedded) == 2
