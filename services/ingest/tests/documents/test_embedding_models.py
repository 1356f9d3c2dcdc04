"""The selection of a job's embedding model."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.ingest.memory import MemoryIndex, make_job
from embedding.models import EmbeddingModel, EmbeddingModels
from ingest.documents.embedding_models import IndexingModels
from ingest.domain import VectorSpace
from servicekit.errors import Conflict, Unavailable

JOB = make_job(b"x")
KEY = (JOB.principal.tenant, JOB.index)


class Recording(HashingEmbedder):
    """An embedder that records its texts."""

    def __init__(self, dimension: int) -> None:
        super().__init__(dimension)
        self.texts: list[str] = []

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self.texts += texts
        return await super().embed(texts)


def models(index: MemoryIndex, *embedders: HashingEmbedder) -> IndexingModels:
    embedding = EmbeddingModels([EmbeddingModel.of(embedder, "query: ", "passage: ") for embedder in embedders])
    return IndexingModels(embedding, index, tokens=200, overlap=30)


async def test_an_index_keeps_its_model() -> None:
    """A new index gets the default model. An existing index keeps its model. After its deletion it gets the default
    again.
    """
    index, default, other = MemoryIndex(), HashingEmbedder(8), HashingEmbedder(16)
    indexing_models = models(index, default, other)
    assert (await indexing_models.for_job(JOB)).space == VectorSpace(default.model, 8)
    index.spaces[KEY] = VectorSpace(other.model, 16)
    assert (await indexing_models.for_job(JOB)).space == VectorSpace(other.model, 16)
    del index.spaces[KEY]
    assert (await indexing_models.for_job(JOB)).space == VectorSpace(default.model, 8)


async def test_chunk_settings_of_an_index() -> None:
    """Each chunk setting of an index overrides the service's setting separately, up to the limit of the model."""
    index = MemoryIndex()
    indexing_models = models(index, HashingEmbedder(8))
    text = "word " * 1000

    async def sizes() -> tuple[int, int]:
        first, second, *_ = (await indexing_models.for_job(JOB)).chunker.text_chunks(text)
        return len(first.text.split()), len(second.text[: second.overlap].split())

    assert await sizes() == (170, 30)
    index.spaces[KEY] = VectorSpace(HashingEmbedder(8).model, 8)
    assert await sizes() == (170, 30)
    for chunking, expected in (((100, None), (70, 30)), ((None, 50), (150, 50)), ((40, 0), (40, 0))):
        index.chunking = chunking
        assert await sizes() == expected


async def test_a_model_that_is_not_configured() -> None:
    """A job fails if the index's model is not configured, or is configured with another dimension."""
    index = MemoryIndex()
    indexing_models = models(index, HashingEmbedder(8))
    for space in (VectorSpace("gone", 8), VectorSpace(HashingEmbedder(8).model, 9)):
        index.spaces[KEY] = space
        with pytest.raises(Conflict, match=f"'{JOB.index}'.*'{space.model}'") as caught:
            await indexing_models.for_job(JOB)
        assert caught.value.resource == JOB.index
    index.spaces[KEY] = VectorSpace("multilingual-e5-small", 384)
    with pytest.raises(Conflict, match="`make multilingual` builds"):
        await indexing_models.for_job(JOB)
    index.down = True
    with pytest.raises(Unavailable):
        await indexing_models.for_job(JOB)


async def test_passages_get_their_prefix() -> None:
    """Each passage is embedded with the model's prefix, and the chunks are short enough for it."""
    embedder = Recording(8)
    model = await models(MemoryIndex(), embedder).for_job(JOB)
    await model.embedder.embed(["a", "b"])
    assert embedder.texts == ["passage: a", "passage: b"]
    assert model.embedder.max_tokens == embedder.max_tokens - 1
