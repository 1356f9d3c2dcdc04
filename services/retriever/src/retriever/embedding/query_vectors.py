"""The vectors of a query: one for each embedding model that made an index it goes to."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import structlog
from embedding.models import EmbeddingModel, EmbeddingModels
from servicekit.errors import CausewayError, Conflict

from retriever.domain.index import IndexSpec
from retriever.domain.ranking import Hit

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class QueryVector:
    """A query's vector, with the model that made it."""

    numbers: Sequence[float]
    model: EmbeddingModel

    def similarities(self, hits: list[Hit]) -> list[Hit]:
        """Hits by cosine, with what the model's cosines say (`EmbeddingModel.similarity`); the order stays."""
        if not self.model.cosine_floor:
            return hits
        return [Hit(hit.id, self.model.similarity(hit.score)) for hit in hits]


Vectors = Mapping[tuple[str, int], QueryVector]
"""By `IndexSpec.space`."""


class QueryVectors:
    """Embeds queries.

    Args:
        models: Those that are configured.
        patience: Seconds that a search by words waits for vectors that only its passages' cosines need.
    """

    def __init__(self, models: EmbeddingModels, *, patience: float = 2.0) -> None:
        self._models = models
        self._patience = patience

    async def needed(self, text: str, specs: Iterable[IndexSpec]) -> Vectors:
        """The query's vector for each index's space; each model is asked once.

        Raises:
            Conflict: An index has vectors of a model that is not configured.
            CausewayError: What a model raises.
        """
        models = {spec.space: self._model_of(spec) for spec in specs}
        tasks: dict[str, asyncio.Task[QueryVector]] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for model in models.values():
                    if model.name not in tasks:
                        tasks[model.name] = group.create_task(_vector(model, text))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures.exceptions[0].__cause__
        return {space: tasks[model.name].result() for space, model in models.items()}

    async def welcome(self, text: str, specs: Iterable[IndexSpec]) -> Vectors:
        """As `needed`, without indexes whose model is not configured, and without any where one is away."""
        vectors: dict[tuple[str, int], QueryVector] = {}
        fitting = [spec for spec in specs if self._models.fitting(spec.embedding_model, spec.dimension)]
        try:
            async with asyncio.timeout(self._patience):
                vectors.update(await self.needed(text, fitting))
        except (CausewayError, TimeoutError) as error:
            _log.warning("searching by words without cosines", error=repr(error), exc_info=error.__cause__)
        return vectors

    def _model_of(self, spec: IndexSpec) -> EmbeddingModel:
        model = self._models.get(spec.embedding_model)
        made = f"Index '{spec.name}' has vectors of the embedding model '{spec.embedding_model}'"
        if model is None:
            raise Conflict(
                f"{made}, which is not configured; search it by text.{self._models.hint(spec.embedding_model)}",
                resource=spec.name,
            )
        if model.dimension != spec.dimension:
            raise Conflict(
                f"{made} with {spec.dimension} numbers each, which is configured with {model.dimension} now; "
                "search it by text.",
                resource=spec.name,
            )
        return model


async def _vector(model: EmbeddingModel, text: str) -> QueryVector:
    vectors = await model.queries.embed([text])
    return QueryVector(vectors[0].tolist(), model)
