"""Which embedding model a job's chunks are made for: an index stays with the one that it was begun with."""

from dataclasses import dataclass

from embedding.models import EmbeddingModel, EmbeddingModels
from embedding.port import Embedder
from servicekit.errors import Conflict

from ingest.chunking import Chunker, Shape
from ingest.domain import Job, VectorSpace
from ingest.ports import Index


@dataclass(frozen=True, slots=True)
class IndexingModel:
    """What makes vectors, and chunks that fit it.

    Attributes:
        embedder: Embeds passages.
        chunker: Counts by its tokenizer.
    """

    embedder: Embedder
    chunker: Chunker

    @property
    def space(self) -> VectorSpace:
        """Where its vectors lie."""
        return VectorSpace(self.embedder.model, self.embedder.dimension)


class IndexingModels:
    """The models, each with its chunker.

    Nothing is remembered of an index: it may be deleted at any time, and begun again with another model.

    Args:
        models: Those that are configured; the first is for new indexes.
        index: Says which model an index was made with.
        tokens: Most tokens of a chunk's text, fewer where a model reads fewer.
        overlap: Most tokens that a chunk repeats of the one before.
    """

    def __init__(self, models: EmbeddingModels, index: Index, *, tokens: int, overlap: int) -> None:
        self._index = index
        self._models = {model.name: _indexing(model, tokens, overlap) for model in models}
        self._default = self._models[models.default.name]

    async def of(self, job: Job) -> IndexingModel:
        """The model of the job's index; the default one where there is no such index yet.

        Raises:
            Conflict: It is not configured, or with vectors of another length.
            Unavailable, DeadlineExceeded: The index cannot be asked.
        """
        space = await self._index.space(job)
        if space is None:
            return self._default
        made = f"Index '{job.index}' has vectors of the embedding model '{space.model}'"
        model = self._models.get(space.model)
        if model is None:
            raise Conflict(f"{made}, which is not configured: nothing can be added to it.", resource=job.index)
        if model.space != space:
            raise Conflict(
                f"{made} with {space.dimension} numbers each, which is configured with {model.space.dimension} "
                "now: nothing can be added to it.",
                resource=job.index,
            )
        return model


def _indexing(model: EmbeddingModel, tokens: int, overlap: int) -> IndexingModel:
    embedder = model.passages
    shape = Shape.fitting(embedder.max_tokens, tokens=tokens, overlap=overlap)
    return IndexingModel(embedder, Chunker(embedder.tokenizer, shape))
