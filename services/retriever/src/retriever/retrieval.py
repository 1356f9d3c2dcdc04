"""Retrieve: embed the query, search by meaning and by words, fuse, read the passages.

The query is embedded first, in a thread of the embedder. After it everything about one index happens in one go: the
embedded store's searches take a millisecond or two and hold the interpreter's lock, so that overlapping them with
anything would gain nothing, and nothing can change between them. Where the loop was given up after all (between two
indexes, or in a store across a network) the indexes' revisions tell whether another version of a document has come
to be seen meanwhile; then those indexes are searched again: a document is always found in exactly one version.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from servicekit.errors import InvalidRequest, PayloadTooLarge
from servicekit.principal import Principal

from retriever.domain import Document, Mode, Passage, Query, Retrieved, Source, Step
from retriever.fusion import Hit, ranked, reciprocal_rank
from retriever.indexes import Index, Indexes
from retriever.pace import Pace
from retriever.query_vectors import QueryVectors, Vectors
from retriever.store.port import StoredChunk, TermEncoder, Terms

MAX_TOP = 1000
MAX_QUERY_LENGTH = 100_000  # code points
_LEAST_CANDIDATES = 50
_CANDIDATES_FACTOR = 4


@dataclass(frozen=True, slots=True)
class _Request:
    """A query with what was made of it."""

    query: Query
    principal: Principal
    top: int
    vectors: Vectors
    terms: Terms

    @property
    def depth(self) -> int:
        """How many candidates each search brings."""
        return max(_CANDIDATES_FACTOR * self.top, _LEAST_CANDIDATES)


@dataclass(frozen=True, slots=True)
class _Found:
    """What the searches of one index brought, at one of its revisions."""

    revision: int
    dense: list[Hit]
    sparse: list[Hit]


class Retrieval:
    """Finds passages.

    Args:
        indexes: Where to search.
        vectors: Makes the query's vectors.
        encoder: Makes the query's sparse vector.
        pace: Has bulk work wait for searches.
        default_top: How many passages where the query does not say.
    """

    def __init__(
        self, indexes: Indexes, vectors: QueryVectors, encoder: TermEncoder, pace: Pace, default_top: int
    ) -> None:
        self._indexes = indexes
        self._vectors = vectors
        self._encoder = encoder
        self._pace = pace
        self._default_top = default_top

    async def retrieve(self, principal: Principal, query: Query) -> Retrieved:
        """The passages that answer the query best.

        Each has both scores, unless the query leaves the missing ones out. A search by words alone goes on without
        a cosine where there is no vector of the query, unless the query sets a minimum. Cosines of two models say
        nothing of each other, so their rankings are fused.

        Raises:
            InvalidRequest: Naming the field.
            NotFound: An index does not exist.
            Conflict: An index has vectors of a model that is not configured.
            Unavailable, DeadlineExceeded, RateLimited: A model does not answer.
        """
        _check(query)
        with self._pace.search():
            return await self._retrieve(principal, query)

    async def _retrieve(self, principal: Principal, query: Query) -> Retrieved:
        indexes = [self._indexes.get(principal.tenant, name) for name in dict.fromkeys(query.indexes)]
        clock = _Clock()
        request = _Request(
            query,
            principal,
            query.top or self._default_top,
            await self._embed(query, indexes, clock),
            self._encoder.query(query.text),
        )
        found: dict[Index, _Found] = {}
        while True:
            for index in indexes:
                if found and index not in found:
                    await asyncio.sleep(0)  # a search over many indexes lets others in
                if index not in found or found[index].revision != index.revision:
                    found[index] = await _search(index, request, clock)
            passages = await _passages(found, request, clock)
            if all(each.revision == index.revision for index, each in found.items()):
                return Retrieved(tuple(passages), clock.steps())

    async def _embed(self, query: Query, indexes: Iterable[Index], clock: "_Clock") -> Vectors:
        needed = query.mode is not Mode.TEXT or query.minimum_dense_score is not None
        if not needed and query.skip_missing_scores:
            return {}
        embed = self._vectors.needed if needed else self._vectors.welcome
        with clock.time("embed"):
            return await embed(query.text, [index.spec for index in indexes])


def _check(query: Query) -> None:
    if not query.indexes:
        raise InvalidRequest("No index is named.", field="indexes")
    if not query.text.strip():
        raise InvalidRequest("Query string cannot be empty.", field="query")
    if len(query.text) > MAX_QUERY_LENGTH:
        raise PayloadTooLarge(f"A query has at most {MAX_QUERY_LENGTH} characters.", field="query")
    if query.top > MAX_TOP:
        raise InvalidRequest(f"At most {MAX_TOP} passages can be asked for.", field="top")


async def _search(index: Index, request: _Request, clock: "_Clock") -> _Found:
    revision = index.revision
    scope = index.scope(request.principal, request.query.filter)
    dense: list[Hit] = []
    sparse: list[Hit] = []
    if request.query.mode is not Mode.TEXT:
        with clock.time("dense"):
            dense = await index.collection.dense(request.vectors[index.spec], request.depth, scope)
    if request.query.mode is not Mode.VECTORS:
        with clock.time("sparse"):
            sparse = await index.collection.sparse(request.terms, request.depth, scope)
    return _Found(revision, dense, sparse)


async def _passages(found: Mapping[Index, _Found], request: _Request, clock: "_Clock") -> list[Passage]:
    query = request.query
    dense = {hit.id: hit.score for each in found.values() for hit in each.dense}
    sparse = {hit.id: hit.score for each in found.values() for hit in each.sparse}
    source = {id_: _source(id_, dense, sparse) for id_ in (*dense, *sparse)}
    home = {hit.id: index for index, each in found.items() for hit in (*each.dense, *each.sparse)}
    with clock.time("fuse"):
        order = _order(query.mode, _by_meaning(found), ranked(Hit(*item) for item in sparse.items()))
    if query.minimum_score is not None:
        order = [hit for hit in order if hit.score >= query.minimum_score]
    if query.minimum_dense_score is not None:
        with clock.time("dense"):
            await _add_dense(dense, _missing(order, dense, home), request)
        order = [hit for hit in order if dense.get(hit.id, -math.inf) >= query.minimum_dense_score]
    best = order[: request.top]
    if not query.skip_missing_scores:
        if request.vectors:
            with clock.time("dense"):
                await _add_dense(dense, _missing(best, dense, home), request)
        with clock.time("sparse"):
            await _add_sparse(sparse, _missing(best, sparse, home), request)
    with clock.time("fuse"):
        chunks, documents = await _read(_by_index((hit.id for hit in best), home))
    return [
        _passage(hit, home[hit.id], chunks[hit.id], documents[hit.id], dense, sparse, source[hit.id])
        for hit in best
        if hit.id in documents
    ]


def _by_meaning(found: Mapping[Index, _Found]) -> list[list[Hit]]:
    """A ranking for each embedding model."""
    hits: dict[str, list[Hit]] = {}
    for index, each in found.items():
        hits.setdefault(index.spec.embedding_model, []).extend(each.dense)
    return [ranked(each) for each in hits.values()]


def _order(mode: Mode, by_meaning: list[list[Hit]], by_words: list[Hit]) -> list[Hit]:
    match mode:
        case Mode.VECTORS:
            return by_meaning[0] if len(by_meaning) == 1 else reciprocal_rank(by_meaning)
        case Mode.TEXT:
            return by_words
        case Mode.HYBRID:
            return reciprocal_rank((*by_meaning, by_words))


async def _add_dense(known: dict[str, float], missing: Mapping[Index, list[str]], request: _Request) -> None:
    for index, ids in missing.items():
        vector = request.vectors.get(index.spec)
        if vector is not None:
            known.update(await index.collection.dense(vector, len(ids), index.scope(request.principal), ids))


async def _add_sparse(known: dict[str, float], missing: Mapping[Index, list[str]], request: _Request) -> None:
    for index, ids in missing.items():
        scope = index.scope(request.principal)
        known.update(dict.fromkeys(ids, 0.0))  # without a word in common
        known.update(await index.collection.sparse(request.terms, len(ids), scope, ids))


async def _read(wanted: Mapping[Index, list[str]]) -> tuple[dict[str, StoredChunk], dict[str, Document]]:
    """Chunks and their documents, both by chunk id."""
    chunks: dict[str, StoredChunk] = {}
    documents: dict[str, Document] = {}
    for index, ids in wanted.items():
        here = await index.collection.chunks(ids)
        records = await index.collection.records(list({chunk.document_id for chunk in here.values()}))
        chunks.update(here)
        documents.update(
            {id_: records[chunk.document_id] for id_, chunk in here.items() if chunk.document_id in records}
        )
    return chunks, documents


def _missing(hits: Iterable[Hit], known: Mapping[str, float], home: Mapping[str, Index]) -> dict[Index, list[str]]:
    return _by_index((hit.id for hit in hits if hit.id not in known), home)


def _by_index(ids: Iterable[str], home: Mapping[str, Index]) -> dict[Index, list[str]]:
    grouped: dict[Index, list[str]] = {}
    for id_ in ids:
        grouped.setdefault(home[id_], []).append(id_)
    return grouped


def _source(id_: str, dense: Mapping[str, float], sparse: Mapping[str, float]) -> Source:
    if id_ in dense:
        return Source.BOTH if id_ in sparse else Source.DENSE
    return Source.SPARSE


def _passage(
    hit: Hit,
    index: Index,
    chunk: StoredChunk,
    document: Document,
    dense: Mapping[str, float],
    sparse: Mapping[str, float],
    source: Source,
) -> Passage:
    return Passage(
        id=hit.id,
        index=index.spec.name,
        document=document,
        number=chunk.number,
        page=chunk.page,
        headings=chunk.headings,
        text=chunk.text,
        score=hit.score,
        dense_score=dense.get(hit.id),
        sparse_score=sparse.get(hit.id),
        source=source,
    )


class _Clock:
    """Adds up the wall time of named steps, in the order in which they first came."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def time(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.perf_counter() - begin

    def steps(self) -> tuple[Step, ...]:
        return tuple(Step(name, seconds * 1000) for name, seconds in self._seconds.items())
