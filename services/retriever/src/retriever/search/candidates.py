"""The candidates that the searches of all indexes found, with their scores, fused into one order."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from servicekit.principal import Principal

from retriever.concurrency.together import together
from retriever.domain.document import Document
from retriever.domain.index import Fusion
from retriever.domain.query import Mode, Passage, Query, Source
from retriever.domain.ranking import Hit, ranked
from retriever.embedding.query_vectors import QueryVector, Vectors
from retriever.indexes.open_index import Index
from retriever.ports.remote_searches import RemoteSearches, Scored
from retriever.ports.store import StoredChunk, Terms
from retriever.ports.term_encoder import TermEncoder
from retriever.search import expansion
from retriever.search.fusion import combined, reciprocal_rank
from retriever.search.ranking_options import RankingOptions
from retriever.search.step_timer import StepTimer

_LEAST_CANDIDATES = 50
_CANDIDATES_FACTOR = 4


@dataclass(frozen=True, slots=True)
class Request:
    """A query with its resolved options, vectors and terms.

    Attributes:
        pool: Number of passages to read: as many as the query asks for, or as many as the reranker gets.
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
        return max(_CANDIDATES_FACTOR * self.query.top, self.pool, _LEAST_CANDIDATES)

    @property
    def fuses_scores(self) -> bool:
        """Whether this is a hybrid search that fuses scores."""
        return self.query.mode is Mode.HYBRID and self.options.fusion is Fusion.SCORES

    def remote(self, index: Index) -> RemoteSearches | None:
        """Return the index's searches that find candidates with both scores in one call.

        Return None if the store is in this process, or if the query does not need both scores.
        """
        return index.collection.remote if self.fuses_scores and not self.query.skip_missing_scores else None


@dataclass(frozen=True, slots=True)
class Found:
    """The results of the searches of one index, at one of its revisions.

    Attributes:
        revision: The revision of the index.
        dense: Hits by cosine.
        sparse: Hits by BM25.
        scored: The missing scores and the chunks. None if each search was a separate call.
    """

    revision: int
    dense: list[Hit]
    sparse: list[Hit]
    scored: Scored | None = None


async def search_all(indexes: Sequence[Index], request: Request, timer: StepTimer) -> dict[Index, Found]:
    """Search the indexes: those on a server concurrently, those in this process one after the other."""
    remote = [index for index in indexes if index.collection.remote is not None]
    found = dict(zip(remote, await together(*(_search(each, request, timer) for each in remote)), strict=True))
    for index in indexes:
        if index not in found:
            if found:
                await asyncio.sleep(0)  # lets other tasks run between two indexes
            found[index] = await _search(index, request, timer)
    return {index: found[index] for index in indexes}


async def _search(index: Index, request: Request, timer: StepTimer) -> Found:
    revision = index.revision
    scope = index.scope(request.principal, request.query.filter)
    remote = request.remote(index)
    if remote is not None:
        with timer.time("dense"), timer.time("sparse"):
            vector, terms = request.vectors[index.spec.space], request.terms[index]
            scored = _compared(vector, await remote.hybrid(vector.numbers, terms, request.depth, scope))
        return Found(revision, scored.dense, scored.sparse, scored)
    dense: list[Hit] = []
    sparse: list[Hit] = []
    if request.query.mode is not Mode.TEXT:
        with timer.time("dense"):
            vector = request.vectors[index.spec.space]
            dense = vector.similarities(await index.collection.dense(vector.numbers, request.depth, scope))
    if request.query.mode is not Mode.VECTORS:
        with timer.time("sparse"):
            sparse = await index.collection.sparse(request.terms[index], request.depth, scope)
    return Found(revision, dense, sparse)


class Candidates:
    """The candidates of a search.

    Args:
        found: The results of each index.
        request: The query.
        encoder: Computes the terms of passages.
        timer: Times the steps.
    """

    def __init__(
        self, found: Mapping[Index, Found], request: Request, encoder: TermEncoder, timer: StepTimer
    ) -> None:
        self.dense: dict[str, float] = {}
        self.sparse: dict[str, float] = {}
        self._home: dict[str, Index] = {}
        for index, each in found.items():
            dense, sparse = dict(each.dense), dict(each.sparse)
            self.dense |= dense
            self.sparse |= sparse
            self._home |= dict.fromkeys((dense | sparse), index)
        self._only_index = next(iter(found)) if len(found) == 1 else None
        self._by_meaning, self._by_words = frozenset(self.dense), frozenset(self.sparse)
        self._chunks: dict[str, StoredChunk] = {}
        self._documents: dict[str, Document] = {}
        for each in found.values():
            if each.scored is not None:
                self._learn(each.scored)
                self.sparse = {**each.scored.words, **self.sparse}
        self._request = request
        self._encoder = encoder
        self._timer = timer

    async def order(self, most: int | None = None) -> list[Hit]:
        """Return all candidates, or the best ``most``, ordered by the mode's own score or by the fused score."""
        query = self._request.query
        if query.mode is Mode.VECTORS:
            with self._timer.time("fuse"):
                by_meaning = [ranked(map(Hit._make, each.items())) for each in self._by_model()]
            return by_meaning[0] if len(by_meaning) == 1 else reciprocal_rank(by_meaning)
        words: Mapping[str, float] = self.sparse
        if self._request.fuses_scores and not query.skip_missing_scores:
            await self.add_missing(self._home)
        if self._request.options.expand and len(self._home) >= expansion.LEAST_BACKGROUND:
            with self._timer.time("fuse"):
                first = self._fused(words, expansion.BACKGROUND)
            words = await self._with_more_words(first)
        with self._timer.time("fuse"):
            return self._fused(words, most)

    async def add_missing(self, ids: Iterable[str]) -> None:
        """Add the missing BM25 scores of these chunks, and the missing cosines if the query has a vector."""
        ids = list(ids)
        if self._request.vectors:
            await self.add_dense(ids)
        with self._timer.time("sparse"):
            for index, missing in self._missing(ids, self.sparse).items():
                self.sparse.update(await self._among(index, self._request.terms[index], missing))

    async def add_dense(self, ids: Iterable[str]) -> None:
        """Add the missing cosines of these chunks."""
        with self._timer.time("dense"):
            for index, missing in self._missing(ids, self.dense).items():
                vector = self._request.vectors.get(index.spec.space)
                if vector is not None:
                    scope = index.scope(self._request.principal)
                    hits = await index.collection.dense(vector.numbers, len(missing), scope, missing)
                    self.dense.update(vector.similarities(hits))

    async def passages(self, hits: Sequence[Hit]) -> list[Passage]:
        """Read the passages of these hits. Leave out passages that were removed meanwhile."""
        with self._timer.time("fuse"):
            await self._read([hit.id for hit in hits])
            self._forget_older_versions()
        names = {index: index.spec.name for index in set(self._home.values())}
        return [self._passage(hit, names) for hit in hits if hit.id in self._documents]

    def _forget_older_versions(self) -> None:
        """Keep only the newest version of each document, because the reads may have seen different versions."""
        newest: dict[tuple[Index, str], int] = {}
        for id_, document in self._documents.items():
            key = (self._home[id_], document.document_id)
            newest[key] = max(newest.get(key, 0), document.generation)
        for id_, document in list(self._documents.items()):
            index = self._home[id_]
            if document.generation < newest[index, document.document_id]:
                del self._documents[id_], self._chunks[id_]
                index.collection.outdated(document.document_id)

    def _fused(self, words: Mapping[str, float], most: int | None) -> list[Hit]:
        weight = self._request.options.dense_weight
        if self._request.fuses_scores:
            return combined(self._by_model(), words, weight, most)
        by_words = [hit for hit in ranked(map(Hit._make, words.items())) if hit.score > 0]
        if self._request.query.mode is Mode.TEXT:
            return by_words
        by_meaning = [ranked(map(Hit._make, each.items())) for each in self._by_model()]
        weights = [2 * weight] * len(by_meaning)
        return reciprocal_rank((*by_meaning, by_words), (*weights, 2 * (1 - weight)))

    async def _with_more_words(self, first: Sequence[Hit]) -> Mapping[str, float]:
        """Return BM25 scores for the expanded query, and add the chunks that it finds to the candidates."""
        best = [hit.id for hit in first[: expansion.BACKGROUND]]
        with self._timer.time("expand"):
            await self._read_chunks(best)
            # The record says the language of the chunk.
            await self._read_records(id_ for id_ in best if id_ in self._chunks and not self._chunks[id_].analysis)
            feedback = self._words_of(best)
            terms = {each: expansion.expanded(own, feedback) for each, own in self._request.terms.items()}
            words: dict[str, float] = {}
            known = set(self._home)
            for index in dict.fromkeys(self._home.values()):
                further = dict(await self._by_further_words(index, terms[index], words, known))
                words |= further
                self._home |= dict.fromkeys(further.keys() - self._home.keys(), index)
            for index, missing in self._missing(known, words).items():
                words.update(await self._among(index, terms[index], missing))
        if self._request.fuses_scores:
            await self.add_dense(id_ for id_ in words if id_ not in known)
        return words

    async def _by_further_words(
        self, index: Index, terms: Terms, words: dict[str, float], known: set[str]
    ) -> list[Hit]:
        """Search an index with the expanded query. Add the other scores that the store returns to ``words``."""
        scope = index.scope(self._request.principal, self._request.query.filter)
        remote = self._request.remote(index)
        if remote is None:
            return await index.collection.sparse(terms, self._request.depth, scope)
        vector = self._request.vectors[index.spec.space]
        here = [id_ for id_ in known if self._home[id_] is index]
        scored = _compared(vector, await remote.further(vector.numbers, terms, self._request.depth, scope, here))
        self._learn(scored)
        words.update(scored.words)
        return scored.sparse

    def _learn(self, scored: Scored) -> None:
        """Add the cosines and the chunks that a remote search returned with its hits."""
        self.dense = {**scored.cosines, **self.dense}
        self._chunks = {**scored.chunks, **self._chunks}

    def _words_of(self, ids: Iterable[str]) -> list[Terms]:
        """Return the terms of the candidates that were read and whose language the encoder supports."""
        found = [
            (self._chunks[id_].text, self._chunks[id_].analysis or self._documents[id_].analysis)
            for id_ in ids
            if id_ in self._chunks
        ]
        return [
            self._encoder.passages([text], language)[0]
            for text, language in found
            if self._encoder.fits(text, language)
        ]

    async def _among(self, index: Index, terms: Terms, ids: list[str]) -> dict[str, float]:
        """Return the BM25 scores of these chunks; 0 for chunks that have none of the terms."""
        scores = dict.fromkeys(ids, 0.0)
        scores.update(await index.collection.sparse(terms, len(ids), index.scope(self._request.principal), ids))
        return scores

    async def _read(self, ids: Sequence[str]) -> None:
        """Read chunks and their documents. Leave out chunks of versions that are not visible."""
        await self._read_chunks(ids)
        await self._read_records([id_ for id_ in ids if id_ in self._chunks])

    async def _read_chunks(self, ids: Iterable[str]) -> None:
        for index, missing in self._missing(ids, self._chunks).items():
            here = await index.collection.chunks(missing)
            if len(here) < len(missing):
                index.collection.outdated()
            self._chunks.update(here)

    async def _read_records(self, ids: Iterable[str]) -> None:
        """Read the documents of chunks. Remove each chunk whose version differs from its document's record."""
        for index, missing in self._missing(ids, self._documents).items():
            names = {self._chunks[id_].document_id for id_ in missing}
            records = await index.collection.records(list(names))
            for id_ in missing:
                record = records.get(self._chunks[id_].document_id)
                if record is not None and self._chunks[id_].generation in (None, record.generation):
                    self._documents[id_] = record
                else:
                    index.collection.outdated(self._chunks.pop(id_).document_id)

    def _by_model(self) -> list[dict[str, float]]:
        """Return the cosines, separately for each embedding model."""
        names = {index: index.spec.embedding_model for index in set(self._home.values())}
        models: dict[str, dict[str, float]] = {}
        if len(set(names.values())) == 1:
            return [self.dense] if self.dense else []
        for id_, cosine in self.dense.items():
            models.setdefault(names[self._home[id_]], {})[id_] = cosine
        return list(models.values())

    def _missing(self, ids: Iterable[str], known: Mapping[str, object]) -> dict[Index, list[str]]:
        missing = [id_ for id_ in ids if id_ not in known]
        if self._only_index is not None:
            return {self._only_index: missing} if missing else {}
        grouped: dict[Index, list[str]] = {}
        for id_ in missing:
            grouped.setdefault(self._home[id_], []).append(id_)
        return grouped

    def _source(self, id_: str) -> Source:
        """Return which searches found a chunk. Expansion terms count as sparse search."""
        if id_ not in self._by_meaning:
            return Source.SPARSE
        return Source.BOTH if id_ in self._by_words else Source.DENSE

    def _passage(self, hit: Hit, names: Mapping[Index, str]) -> Passage:
        chunk = self._chunks[hit.id]
        return Passage(
            id=hit.id,
            index=names[self._home[hit.id]],
            document=self._documents[hit.id],
            number=chunk.number,
            page=chunk.page,
            headings=chunk.headings,
            text=chunk.text,
            score=hit.score,
            dense_score=self.dense.get(hit.id),
            sparse_score=self.sparse.get(hit.id),
            source=self._source(hit.id),
            first=chunk.number,
            last=chunk.number,
        )


def _compared(vector: QueryVector, scored: Scored) -> Scored:
    """Return the result of a remote search with its cosines scaled as by `QueryVector.similarities`."""
    if not vector.model.cosine_floor:
        return scored
    cosines = {id_: vector.model.similarity(cosine) for id_, cosine in scored.cosines.items()}
    return replace(scored, dense=vector.similarities(scored.dense), cosines=cosines)
