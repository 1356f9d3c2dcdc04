"""Which embedding model a job's chunks are made for: an index stays with the one that it was begun with."""

from dataclasses import dataclass

from embedding.models import EmbeddingModels
from embedding.port import Embedder
from servicekit.errors import Conflict

from ingest.documents.chunking import Chunker, Shape
from ingest.domain import Job, VectorSpace
from ingest.ports import Index


@dataclass(frozen=True, slots=True)
class IndexingModel:
    """What makes vectors, and chunks that fit it.

    Attributes:
        embedder: Embeds passages.
        chunker: Counts by its tokenizer.
        ocr: Whether the index wants text in images recognised.
    """

    embedder: Embedder
    chunker: Chunker
    ocr: bool = True

    @property
    def space(self) -> VectorSpace:
        """Where its vectors lie."""
        return VectorSpace(self.embedder.model, self.embedder.dimension)


class IndexingModels:
    """The models, with a chunker for each index.

    Nothing is remembered of an index: it may be deleted at any time, and begun again with another model.

    Args:
        models: Those that are configured; the first is for new indexes.
        index: Says which model an index was made with, and how large its chunks are to be.
        tokens: Most tokens of a chunk's text where the index does not say, fewer where a model reads fewer.
        overlap: Most tokens that a chunk repeats of the one before, likewise.
    """

    def __init__(self, models: EmbeddingModels, index: Index, *, tokens: int, overlap: int) -> None:
        self._index = index
        self._models = {model.name: model.passages for model in models}
        self._hint = models.hint
        self._default = models.default.passages
        self._tokens = tokens
        self._overlap = overlap

    async def of(self, job: Job) -> IndexingModel:
        """The model of the job's index, with chunks as it wants them; the default one where it is not there yet.

        Raises:
            Conflict: It is not configured, or with vectors of another length.
            Unavailable, DeadlineExceeded: The index cannot be asked.
        """
        traits = await self._index.traits(job)
        if traits is None:
            return self._indexing(self._default, None, None, ocr=True)
        space = traits.space
        made = f"Index '{job.index}' has vectors of the embedding model '{space.model}'"
        embedder = self._models.get(space.model)
        if embedder is None:
            raise Conflict(
                f"{made}, which is not configured: nothing can be added to it.{self._hint(space.model)}",
                resource=job.index,
            )
        if embedder.dimension != space.dimension:
            raise Conflict(
                f"{made} with {space.dimension} numbers each, which is configured with {embedder.dimension} "
                "now: nothing can be added to it.",
                resource=job.index,
            )
        return self._indexing(embedder, traits.chunk_tokens, traits.chunk_overlap, ocr=traits.ocr)

    def _indexing(self, embedder: Embedder, tokens: int | None, overlap: int | None, *, ocr: bool) -> IndexingModel:
        shape = Shape.fitting(
            embedder.max_tokens,
            tokens=self._tokens if tokens is None else tokens,
            overlap=self._overlap if overlap is None else overlap,
        )
        return IndexingModel(embedder, Chunker(embedder.tokenizer, shape), ocr)
