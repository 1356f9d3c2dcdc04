"""Retrieval: embed the query, run dense and sparse search, fuse, read the passages, and order them.

The query is embedded first, in a thread or on a model server. In the embedded store, all searches of one index then
run without yielding to the event loop. They take one or two milliseconds and hold the GIL, so concurrency would
gain nothing, and no document can change between them. Between two indexes, and in a remote store, other tasks run.
If the revision of an index changes meanwhile, a new version of a document has become visible. Then the index is
searched again. So a search sees exactly one version of a document.

Reranking, diversity, neighbours and captions are later steps. They process the passages that were read.
"""

import contextlib
import math
from collections.abc import Iterable, Mapping

from servicekit.errors import InvalidRequest, PayloadTooLarge
from servicekit.principal import Principal

from retriever.concurrency.retry import retry_when_replaced
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.query import MAX_TOP, Mode, Passage, Query, Retrieved
from retriever.embedding.query_vectors import QueryVectors, Vectors
from retriever.indexes.lifecycle import Indexes
from retriever.indexes.open_index import Index
from retriever.ports.store import Terms
from retriever.ports.term_encoder import TermEncoder
from retriever.rerankers.reranking import Reranking
from retriever.search import captions, diversity, neighbours
from retriever.search.candidates import Candidates
from retriever.search.index_search import IndexResults, Request, search_all
from retriever.search.metrics import SearchSpan
from retriever.search.query_analyzer import QueryAnalyzer, merged
from retriever.search.ranking_options import resolve_options
from retriever.search.step_timer import StepTimer

MAX_INDEXES = 100
MAX_NEIGHBOURS = 10
MAX_QUERY_LENGTH = 100_000  # code points
_DIVERSE_POOL = 50
"""Minimum number of passages to read if the query asks for diverse passages."""
_MAX_PASSAGES_PER_RESULT = 4
_MAX_ROUNDS = 20
"""Maximum number of searches of an index in one retrieval, if documents are replaced again and again."""


class Retrieval:
    """Finds passages.

    Args:
        indexes: The indexes.
        vectors: Computes the query's vectors.
        encoder: Computes the terms of passages.
        analyzer: Computes the terms of queries.
        scheduler: Makes bulk work wait for searches.
        reranking: Reranks the passages.
        trace_content: Whether traces have the text of queries.
    """

    def __init__(
        self,
        indexes: Indexes,
        vectors: QueryVectors,
        encoder: TermEncoder,
        analyzer: QueryAnalyzer,
        scheduler: Scheduler,
        reranking: Reranking,
        *,
        trace_content: bool = False,
    ) -> None:
        self._indexes = indexes
        self._vectors = vectors
        self._encoder = encoder
        self._analyzer = analyzer
        self._scheduler = scheduler
        self._reranking = reranking
        self._trace_content = trace_content

    async def retrieve(self, principal: Principal, query: Query) -> Retrieved:
        """Return the passages that answer the query best.

        Each passage has both scores, except if the query skips missing scores. If the query cannot be embedded, a
        sparse search returns passages without cosines, or fails if the query sets a minimum cosine. Cosines of
        different models are not comparable. So a fusion divides each cosine by the best cosine of its model, or
        replaces it by its rank.

        Raises:
            InvalidRequest: A field is wrong.
            NotFound: An index or the reranker does not exist.
            Conflict: The embedding model of an index is not configured, or its vectors have another length now.
            Unavailable, DeadlineExceeded, RateLimited: A model server does not respond, or an index cannot be read.
            RerankerFailed: The reranker returned an error, and it is configured as required.
        """
        _check(query)
        timer = StepTimer()
        with SearchSpan(query, timer, content=self._trace_content) as span:
            retrieved = await self._retrieve(principal, query, timer)
            span.record(retrieved)
        return retrieved

    async def _retrieve(self, principal: Principal, query: Query, timer: StepTimer) -> Retrieved:
        top = query.top
        pool = self._pool(query, top)
        with self._scheduler.search():
            passages = await self._search(principal, query, pool, timer)
        with timer.time("rerank") if query.rerank is not None else contextlib.nullcontext():
            reranked = await self._reranking.reranked(query, passages)
        best = self._best(query, reranked.passages, top * _passages_per_result(query), timer)
        if query.neighbours:
            with timer.time("neighbours"):
                names = dict.fromkeys(passage.index for passage in best)
                indexes = {name: await self._indexes.get(principal.tenant, name) for name in names}
                best = await neighbours.extended(best, query.neighbours, top, indexes)
        if query.captions:
            with timer.time("captions"):
                best = captions.captioned(await self._all_terms(principal, query), best, self._encoder)
        return Retrieved(tuple(best), timer.steps(), reranked.reranker, reranked.not_reranked)

    async def _all_terms(self, principal: Principal, query: Query) -> Terms:
        """Return the query's terms in all languages of its indexes."""
        indexes = [await self._indexes.get(principal.tenant, name) for name in dict.fromkeys(query.indexes)]
        return merged((await self._analyzer.terms(query.text, indexes)).values())

    def _pool(self, query: Query, top: int) -> int:
        """Return how many passages are read before the best are chosen."""
        reranker = self._reranking.reranker_for(query)
        return max(
            top * _passages_per_result(query),
            reranker.candidates if reranker else 0,
            _DIVERSE_POOL if query.diversity else 0,
        )

    def _best(self, query: Query, passages: list[Passage], top: int, timer: StepTimer) -> list[Passage]:
        """Return the first ``top`` passages, or ``top`` diverse passages if the query asks for them."""
        if not query.diversity:
            return passages[:top]
        with timer.time("diversify"):
            # Passages that the reranker did not receive have no comparable score.
            comparable = [passage for passage in passages if passage.reranker_score is not None] or passages
            scores = [_relevance(passage) for passage in comparable]
            terms = [
                self._encoder.encode_passages([passage.text], passage.document.analysis_language)[0]
                for passage in comparable
            ]
            chosen = diversity.diverse(scores, terms, query.diversity, top)
            return [comparable[at] for at in chosen]

    @retry_when_replaced
    async def _search(self, principal: Principal, query: Query, pool: int, timer: StepTimer) -> list[Passage]:
        names = dict.fromkeys(query.indexes)
        indexes = [await self._indexes.get(principal.tenant, name, wait=False) for name in names]
        vectors = await self._embed(query, indexes, timer)
        options = resolve_options(query, [index.spec.settings for index in indexes])
        request = Request(query, options, principal, pool, vectors, await self._analyzer.terms(query.text, indexes))
        found: dict[Index, IndexResults] = {}
        for _ in range(_MAX_ROUNDS):
            old = [index for index in indexes if index not in found or found[index].revision != index.revision]
            found |= await search_all(old, request, timer)
            passages = await self._passages(found, request, timer)
            if all(results.revision == index.revision for index, results in found.items()):
                break
        return passages

    async def _embed(self, query: Query, indexes: Iterable[Index], timer: StepTimer) -> Vectors:
        is_required = query.mode is not Mode.TEXT or query.minimum_dense_score is not None
        if not is_required and query.skip_missing_scores:
            return {}
        embed = self._vectors.embed if is_required else self._vectors.embed_if_available
        with timer.time("embed"):
            return await embed(query.text, [index.spec for index in indexes])

    async def _passages(
        self, found: Mapping[Index, IndexResults], request: Request, timer: StepTimer
    ) -> list[Passage]:
        query = request.query
        candidates = Candidates(found, request, self._encoder, timer)
        # A minimum cosine removes candidates, so all of them are needed to fill the pool.
        order = await candidates.order(request.pool if query.minimum_dense_score is None else None)
        if query.minimum_score is not None:
            order = [hit for hit in order if hit.score >= query.minimum_score]
        if query.minimum_dense_score is not None:
            await candidates.add_dense(hit.id for hit in order)
            minimum = query.minimum_dense_score
            order = [hit for hit in order if candidates.dense.get(hit.id, -math.inf) >= minimum]
        best = order[: request.pool]
        if not query.skip_missing_scores:
            await candidates.add_missing([hit.id for hit in best])
        return await candidates.passages(best)


def _passages_per_result(query: Query) -> int:
    """Return the number of passages to read for each result. Neighbours may merge several passages."""
    return min(1 + 2 * query.neighbours, _MAX_PASSAGES_PER_RESULT)


def _relevance(passage: Passage) -> float:
    return passage.score if passage.reranker_score is None else passage.reranker_score


def _check(query: Query) -> None:
    if not query.indexes:
        raise InvalidRequest("Name at least one index.", field="indexes")
    if len(query.indexes) > MAX_INDEXES:
        raise InvalidRequest(f"At most {MAX_INDEXES} indexes can be searched together.", field="indexes")
    if not query.text.strip():
        raise InvalidRequest("Query string cannot be empty.", field="query")
    if len(query.text) > MAX_QUERY_LENGTH:
        raise PayloadTooLarge(f"A query has at most {MAX_QUERY_LENGTH} characters.", field="query")
    if not 1 <= query.top <= MAX_TOP:
        raise InvalidRequest(f"top must be between 1 and {MAX_TOP}.", field="top")
    if query.neighbours > MAX_NEIGHBOURS:
        raise InvalidRequest(f"neighbours must be at most {MAX_NEIGHBOURS}.", field="neighbours")
    for name in ("dense_weight", "diversity"):
        value = getattr(query, name)
        if value is not None and not 0 <= value <= 1:
            raise InvalidRequest(f"{name} is a number from 0 to 1.", field=name)
