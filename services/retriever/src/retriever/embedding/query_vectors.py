"""The vectors of a query: one for each embedding model of the searched indexes."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import structlog
from embedding.models import EmbeddingModel, EmbeddingModels
from servicekit.errors import CausewayError, Conflict

from retriever.byte_cache import ByteCache
from retriever.domain.index import IndexSpec

MAX_CACHE_BYTES = 4 * 1024 * 1024
"""About 2,000 queries of 384 numbers."""

_CHARACTER_BYTES = 4
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A query's vector and its model."""

    numbers: Sequence[float]
    model: EmbeddingModel

    def similarities(self, cosines: Mapping[str, float]) -> Mapping[str, float]:
        """Return the cosines, scaled by `EmbeddingModel.similarity`."""
        if not self.model.cosine_floor:
            return cosines
        return {id_: self.model.similarity(cosine) for id_, cosine in cosines.items()}


Vectors = Mapping[tuple[str, int], QueryVector]
"""The vectors of one query by `IndexSpec.space`."""


class QueryVectors:
    """Embeds queries and caches their vectors, because embedding takes longer than searching.

    So a repeated query needs no model, even while the model's server is unavailable.

    Args:
        models: The configured models.
        cosine_timeout: Seconds that a sparse search waits for vectors that it needs only for cosines.
        max_bytes: Size of the cache.
    """

    def __init__(
        self, models: EmbeddingModels, *, cosine_timeout: float = 2.0, max_bytes: int = MAX_CACHE_BYTES
    ) -> None:
        self._models = models
        self._cosine_timeout = cosine_timeout
        # A vector depends on the model and the text alone.
        self._cache: ByteCache[tuple[str, str], npt.NDArray[np.float32]] = ByteCache(max_bytes)

    async def embed(self, text: str, specs: Iterable[IndexSpec]) -> Vectors:
        """Return the query's vector for each index's space. Each model is called once.

        Raises:
            Conflict: The model of an index is not configured, or its vectors have another length now.
            CausewayError: A model failed.
        """
        models = {spec.space: self._model_of(spec) for spec in specs}
        by_name = {model.name: model for model in models.values()}
        found = {name: self._cache.get((name, text)) for name in by_name}
        missing = [by_name[name] for name, vector in found.items() if vector is None]
        if missing:
            found |= await self._embedded(text, missing)
        by_model = {
            name: QueryVector(vector.tolist(), by_name[name])
            for name, vector in found.items()
            if vector is not None
        }
        return {space: by_model[model.name] for space, model in models.items()}

    async def _embedded(self, text: str, models: Iterable[EmbeddingModel]) -> Mapping[str, npt.NDArray[np.float32]]:
        """Return the query's vector of each model."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = {model.name: group.create_task(_vector(model, text)) for model in models}
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures.exceptions[0].__cause__
        vectors = {name: task.result() for name, task in tasks.items()}
        for name, vector in vectors.items():
            self._cache.put((name, text), vector, vector.nbytes + _CHARACTER_BYTES * len(text))
        return vectors

    async def embed_if_available(self, text: str, specs: Iterable[IndexSpec]) -> Vectors:
        """Embed a query like `embed`, but skip indexes whose embedding model or its dimension is not configured.

        Return no vectors at all if a model fails or is slow.
        """
        vectors: dict[tuple[str, int], QueryVector] = {}
        fitting = [spec for spec in specs if self._models.find(spec.embedding_model, spec.dimension)]
        try:
            async with asyncio.timeout(self._cosine_timeout):
                vectors.update(await self.embed(text, fitting))
        except (CausewayError, TimeoutError) as error:
            _log.warning("searching by words without cosines", error=repr(error), exc_info=error.__cause__)
        return vectors

    def _model_of(self, spec: IndexSpec) -> EmbeddingModel:
        model = self._models.get(spec.embedding_model)
        subject = f"Index '{spec.name}' has vectors of the embedding model '{spec.embedding_model}'"
        if model is None:
            raise Conflict(
                f"{subject}, which is not configured; search the index by text."
                f"{self._models.install_hint(spec.embedding_model)}",
                resource=spec.name,
            )
        if model.dimension != spec.dimension:
            raise Conflict(
                f"{subject} with {spec.dimension} numbers each. The configuration of this model has "
                f"{model.dimension} numbers now; search the index by text.",
                resource=spec.name,
            )
        return model


async def _vector(model: EmbeddingModel, text: str) -> npt.NDArray[np.float32]:
    vector: npt.NDArray[np.float32] = (await model.queries.embed([text]))[0]
    return vector
