"""Selects the embedding model for a job's chunks: the model with which the index was created."""

from dataclasses import dataclass

from embedding.models import EmbeddingModels
from embedding.port import Embedder
from servicekit.errors import Conflict

from ingest.documents.chunking import Chunker, ChunkLimits
from ingest.domain import IndexProperties, Job, VectorSpace
from ingest.ports import Index


@dataclass(frozen=True, slots=True)
class IndexingModel:
    """An embedding model and the chunker for it.

    Attributes:
        embedder: Embeds passages.
        chunker: Splits documents, with the model's tokenizer.
        ocr: Whether text in images is recognised for the index.
    """

    embedder: Embedder
    chunker: Chunker
    ocr: bool = True

    @property
    def space(self) -> VectorSpace:
        """The space of the model's vectors."""
        return VectorSpace(self.embedder.model, self.embedder.dimension)


class IndexingModels:
    """The embedding models, with a chunker for each index.

    Properties of an index are not cached, because it may be deleted and created again with another model.

    Args:
        models: The configured models. New indexes use the first model.
        index: The retriever, which knows the model of each index and the size of its chunks.
        tokens: Default maximum number of tokens of a chunk's text. It is lower for a model with a lower limit.
        overlap: Default maximum number of tokens that a chunk repeats from the previous chunk.
    """

    def __init__(self, models: EmbeddingModels, index: Index, *, tokens: int, overlap: int) -> None:
        self._index = index
        self._models = {model.name: model.passages for model in models}
        self._install_hint = models.install_hint
        self._default = models.default.passages
        self._tokens = tokens
        self._overlap = overlap

    async def for_job(self, job: Job) -> IndexingModel:
        """Return the model and the chunker for the job's index, or the defaults for a new index.

        Raises:
            Conflict: The model is not configured, or is configured with another dimension.
            Unavailable, DeadlineExceeded: The index cannot be reached.
        """
        return self.select(job, await self._index.properties(job))

    def select(self, job: Job, properties: IndexProperties | None) -> IndexingModel:
        """Return the model and the chunker for an index with these properties, which are None for a new index.

        Raises:
            Conflict: See `for_job`.
        """
        if properties is None:
            return self._indexing_model(self._default, None, None, ocr=True)
        space = properties.space
        subject = f"Index '{job.index}' has vectors of the embedding model '{space.model}'"
        embedder = self._models.get(space.model)
        if embedder is None:
            raise Conflict(
                f"{subject}, which is not configured. Nothing can be added to it.{self._install_hint(space.model)}",
                resource=job.index,
            )
        if embedder.dimension != space.dimension:
            raise Conflict(
                f"{subject} with {space.dimension} dimensions, but the model is configured with "
                f"{embedder.dimension}. Nothing can be added to it.",
                resource=job.index,
            )
        return self._indexing_model(embedder, properties.chunk_tokens, properties.chunk_overlap, ocr=properties.ocr)

    def _indexing_model(
        self, embedder: Embedder, tokens: int | None, overlap: int | None, *, ocr: bool
    ) -> IndexingModel:
        limits = ChunkLimits.for_model(
            embedder.max_tokens,
            tokens=self._tokens if tokens is None else tokens,
            overlap=self._overlap if overlap is None else overlap,
        )
        return IndexingModel(embedder, Chunker(embedder.tokenizer, limits), ocr)
