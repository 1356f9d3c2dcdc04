"""Searches of one index on a Qdrant server, in as few calls as possible.

A search depends on the current collection of the index and on the unsettled documents (`unsettled`). Both are read
concurrently with the search. If the unsettled documents have changed, the search is repeated. If the index has
another collection, `Replaced` is raised, and the caller repeats the search.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from qdrant_client import AsyncQdrantClient, models

from retriever.concurrency.gathering import gather_all
from retriever.domain.scope import Scope
from retriever.ports.remote_searches import Scored
from retriever.ports.store import StoredChunk, Terms
from retriever.stores import payload
from retriever.stores.qdrant import schema
from retriever.stores.qdrant.location import Location
from retriever.stores.qdrant.points import Points
from retriever.stores.qdrant.unsettled import Unsettled

T = TypeVar("T")

_Generations = Mapping[str, int | None]


class QdrantSearches:
    """The searches of `ports.remote_searches.RemoteSearches`.

    Args:
        location: The location of the index.
        points: Calls the server.
        unsettled: The documents that are being written or that have stray chunks.
        check: Raises Replaced if the index has another collection or other settings.
    """

    def __init__(
        self,
        location: Location,
        points: Points,
        unsettled: Unsettled,
        check: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        self._location = location
        self._points = points
        self._unsettled = unsettled
        self._check = check

    async def dense(
        self, vector: Sequence[float], limit: int, scope: Scope, ids: Sequence[str] | None
    ) -> dict[str, float]:
        """Return the highest cosines."""
        if ids is not None and not ids:
            return {}
        return await self._with_unsettled(
            lambda unsettled: self._search(self._dense(vector, limit, scope, unsettled, ids))
        )

    async def sparse(self, terms: Terms, limit: int, scope: Scope, ids: Sequence[str] | None) -> dict[str, float]:
        """Return the highest BM25 scores."""
        if not terms.indices or (ids is not None and not ids):
            return {}
        return await self._with_unsettled(
            lambda unsettled: self._search(self._sparse(terms, limit, scope, unsettled, ids))
        )

    async def hybrid(self, vector: Sequence[float], terms: Terms, limit: int, scope: Scope) -> Scored:
        """Run dense and sparse search in one call, and score the chunks of each search by the other search, too."""
        total_limit = limit * self._location.shards  # each shard returns its own best chunks

        async def search(unsettled: _Generations) -> Scored:
            dense = self._dense(vector, limit, scope, unsettled)
            if not terms.indices:
                [near] = await self._batch([_with_text(dense)])
                return Scored(_scores(near), {}, {}, dict.fromkeys(map(_id, near), 0.0), _chunks(near))
            sparse = self._sparse(terms, limit, scope, unsettled)
            near, best, cosines, words = await self._batch(
                [
                    _with_text(dense),
                    _with_text(sparse),
                    _among(dense, sparse, total_limit),
                    _among(sparse, dense, total_limit),
                ]
            )
            known = dict.fromkeys(map(_id, near), 0.0) | _scores(words)
            return Scored(_scores(near), _scores(best), _scores(cosines), known, _chunks(near) | _chunks(best))

        return await self._with_unsettled(search)

    async def sparse_with_cosines(
        self, vector: Sequence[float], terms: Terms, limit: int, scope: Scope, known: Sequence[str]
    ) -> Scored:
        """Run sparse search. Also return the cosines of its chunks, and the BM25 scores of ``known`` chunks."""
        total_limit = limit * self._location.shards

        async def search(unsettled: _Generations) -> Scored:
            sparse = self._sparse(terms, limit, scope, unsettled)
            dense = self._dense(vector, limit, scope, unsettled)
            best, cosines, words = await self._batch(
                [
                    _with_text(sparse),
                    _among(dense, sparse, total_limit),
                    self._sparse(terms, max(1, len(known)), scope, unsettled, known),
                ]
            )
            hits = _scores(best)
            scored = dict.fromkeys(known, 0.0) | _scores(words) | hits
            return Scored({}, hits, _scores(cosines), scored, _chunks(best))

        return await self._with_unsettled(search)

    async def _with_unsettled(self, search: Callable[[_Generations], Coroutine[Any, Any, T]]) -> T:
        unsettled = self._unsettled.known
        found, now, _ = await gather_all(search(unsettled), self._unsettled.refresh(), self._check())
        result: T = found if now == unsettled else await search(now)
        return result

    def _dense(
        self,
        vector: Sequence[float],
        limit: int,
        scope: Scope,
        unsettled: _Generations,
        ids: Sequence[str] | None = None,
    ) -> models.QueryRequest:
        return models.QueryRequest(
            query=models.NearestQuery.model_construct(nearest=list(vector)),
            using=payload.DENSE,
            limit=limit,
            filter=schema.scope_filter(scope, payload.CHUNK, ids, unsettled),
            params=self._location.collection.layout.search,
            with_payload=False,
        )

    def _sparse(
        self, terms: Terms, limit: int, scope: Scope, unsettled: _Generations, ids: Sequence[str] | None = None
    ) -> models.QueryRequest:
        vector = models.SparseVector.model_construct(indices=list(terms.indices), values=list(terms.weights))
        return models.QueryRequest(
            query=models.NearestQuery.model_construct(nearest=vector),
            using=payload.SPARSE,
            limit=limit,
            filter=schema.scope_filter(scope, payload.CHUNK, ids, unsettled),
            params=schema.idf_params(scope, unsettled),
            with_payload=False,
        )

    async def _search(self, request: models.QueryRequest) -> dict[str, float]:
        found = await self._points.read(
            AsyncQdrantClient.query_points,
            query=request.query,
            using=request.using,
            limit=request.limit,
            query_filter=request.filter,
            search_params=request.params,
            with_payload=False,
        )
        return _scores(found.points)

    async def _batch(self, requests: list[models.QueryRequest]) -> list[list[models.ScoredPoint]]:
        found = await self._points.read(AsyncQdrantClient.query_batch_points, requests)
        return [reply.points for reply in found]


def _with_text(request: models.QueryRequest) -> models.QueryRequest:
    return request.model_copy(update={"with_payload": schema.STORED_CHUNK_FIELDS})


def _among(request: models.QueryRequest, other: models.QueryRequest, limit: int) -> models.QueryRequest:
    """Return the request that scores the chunks that another search finds."""
    first = models.Prefetch.model_construct(
        query=other.query, using=other.using, limit=other.limit, filter=other.filter, params=other.params
    )
    return request.model_copy(update={"prefetch": [first], "filter": None, "limit": limit})


def _id(point: models.ScoredPoint) -> str:
    return str(point.id)


def _scores(points: Sequence[models.ScoredPoint]) -> dict[str, float]:
    return {str(point.id): point.score for point in points}


def _chunks(points: Sequence[Any]) -> dict[str, StoredChunk]:
    return {str(point.id): schema.stored_chunk(str(point.id), point.payload or {}) for point in points}
