"""Searches one or several indexes by cosine, by BM25 or by both."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from servicekit.principal import Principal

from retriever.concurrency.gathering import gather_all
from retriever.domain.index import Fusion
from retriever.domain.query import Mode, Query
from retriever.embedding.query_vectors import QueryVector, Vectors
from retriever.indexes.open_index import Index
from retriever.ports.remote_searches import RemoteSearches, Scored
from retriever.ports.store import Terms
from retriever.search.ranking_options import RankingOptions
from retriever.search.step_timer import StepTimer

_MIN_CANDIDATES = 50
_CANDIDATES_FACTOR = 4


@dataclass(frozen=True, slots=True)
class Request:
    """A query with its resolved options, vectors and terms.

    Attributes:
        pool: Number of passages to read. The later steps of the search choose the best of them.
        vectors: The vectors of the query; empty if the search needs none, or if the query could not be embedded.
        terms: The query's terms for each index. They differ between indexes in different languages.
    """

    query: Query
    options: RankingOptions
    principal: Principal
    pool: int
    vectors: Vectors
    terms: Mapping[Index, Terms]

    @property
    def depth(self) -> int:
        """The number of candidates that each search returns."""
        return max(_CANDIDATES_FACTOR * self.query.top, self.pool, _MIN_CANDIDATES)

    @property
    def fuses_scores(self) -> bool:
        """Whether this is a hybrid search that fuses scores."""
        return self.query.mode is Mode.HYBRID and self.options.fusion is Fusion.SCORES

    def remote(self, index: Index) -> RemoteSearches | None:
        """Return the port that gets the candidates of an index, with both scores, in one call.

        Return None if the index's store is in this process, or if the query does not need both scores.
        """
        return index.collection.remote if self.fuses_scores and not self.query.skip_missing_scores else None


@dataclass(frozen=True, slots=True)
class IndexResults:
    """The results of the searches of one index.

    Attributes:
        revision: The revision of the index when the searches began.
        dense: The highest cosines, scaled by `QueryVector.similarities`, by chunk id.
        sparse: The highest BM25 scores, by chunk id.
        scored: The result of `RemoteSearches.hybrid`. None if each search was a separate call.
    """

    revision: int
    dense: Mapping[str, float]
    sparse: Mapping[str, float]
    scored: Scored | None = None


async def search_all(indexes: Sequence[Index], request: Request, timer: StepTimer) -> dict[Index, IndexResults]:
    """Search the indexes: those on a server concurrently, those in this process one after the other."""
    remote = [index for index in indexes if index.collection.remote is not None]
    found = dict(zip(remote, await gather_all(*(_search(index, request, timer) for index in remote)), strict=True))
    for index in indexes:
        if index not in found:
            if found:
                await asyncio.sleep(0)  # lets other tasks run between two indexes
            found[index] = await _search(index, request, timer)
    return {index: found[index] for index in indexes}


async def _search(index: Index, request: Request, timer: StepTimer) -> IndexResults:
    revision = index.revision
    scope = index.scope(request.principal, request.query.filter)
    remote = request.remote(index)
    if remote is not None:
        with timer.time("dense"), timer.time("sparse"):
            vector, terms = request.vectors[index.spec.space], request.terms[index]
            scored = with_similarities(vector, await remote.hybrid(vector.numbers, terms, request.depth, scope))
        return IndexResults(revision, scored.dense, scored.sparse, scored)
    dense: Mapping[str, float] = {}
    sparse: Mapping[str, float] = {}
    if request.query.mode is not Mode.TEXT:
        with timer.time("dense"):
            vector = request.vectors[index.spec.space]
            dense = vector.similarities(await index.collection.dense(vector.numbers, request.depth, scope))
    if request.query.mode is not Mode.VECTORS:
        with timer.time("sparse"):
            sparse = await index.collection.sparse(request.terms[index], request.depth, scope)
    return IndexResults(revision, dense, sparse)


def with_similarities(vector: QueryVector, scored: Scored) -> Scored:
    """Return the result of a remote search with its cosines scaled by `QueryVector.similarities`."""
    if not vector.model.cosine_floor:
        return scored
    return replace(scored, dense=vector.similarities(scored.dense), cosines=vector.similarities(scored.cosines))
