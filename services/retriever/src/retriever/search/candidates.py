"""What the searches of all indexes found: one set of candidates with their scores, fused to one order."""

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
    """A query with what was made of it.

    Attributes:
        pool: How many passages are to be read: as many as are asked for, or as a reranker gets.
        terms: The words for each index, whose documents may be in other languages.
    """

    query: Query
    options: RankingOptions
    principal: Principal
    pool: int
    vectors: Vectors
    terms: Mapping[Index, Terms]

    @property
    def depth(self) -> int:
        """How many candidates each search brings."""
        return max(_CANDIDATES_FACTOR * self.query.top, self.pool, _LEAST_CANDIDATES)

    @property
    def fuses_scores(self) -> bool:
        """Whether it is a hybrid search, by scores."""
        return self.query.mode is Mode.HYBRID and self.options.fusion is Fusion.SCORES

    def remote(self, index: Index) -> RemoteSearches | None:
        """What finds candidates with both scores in one call, where both are wanted and a call costs something."""
        return index.collection.remote if self.fuses_scores and not self.query.skip_missing_scores else None


@dataclass(frozen=True, slots=True)
class Found:
    """What the searches of one index brought, at one of its revisions.

    Attributes:
        revision: The index's.
        dense: Hits by cosine.
        sparse: Hits by BM25.
        scored: What else is known of them; None where each search was a call of its own.
    """

    revision: int
    dense: list[Hit]
    sparse: list[Hit]
    scored: Scored | None = None


async def search_all(indexes: Sequence[Index], request: Request, timer: StepTimer) -> dict[Index, Found]:
    """Search indexes as the mode says: those across a network at once, those in this process in turn."""
    remote = [index for index in indexes if index.collection.remote is not None]
    found = dict(zip(remote, await together(*(_search(each, request, timer) for each in remote)), strict=True))
    for index in indexes:
        if index not in found:
            if found:
                await asyncio.sleep(0)  # a search over many indexes lets others in
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
        found: What each index brought.
        request: What is searched for.
        encoder: Knows a passage's words.
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
        """Return all of them in one order, by the mode's own score or by the fused one; or ``most`` of the best."""
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
        """Finds out what is not known yet of these: cosine (where the query has a vector) and BM25 score."""
        ids = list(ids)
        if self._request.vectors:
            await self.add_dense(ids)
        with self._timer.time("sparse"):
            for index, missing in self._missing(ids, self.sparse).items():
                self.sparse.update(await self._among(index, self._request.terms[index], missing))

    async def add_dense(self, ids: Iterable[str]) -> None:
        """Finds out the cosines that are not known yet."""
        with self._timer.time("dense"):
            for index, missing in self._missing(ids, self.dense).items():
                vector = self._request.vectors.get(index.spec.space)
                if vector is not None:
                    scope = index.scope(self._request.principal)
                    hits = await index.collection.dense(vector.numbers, len(missing), scope, missing)
                    self.dense.update(vector.similarities(hits))

    async def passages(self, hits: Sequence[Hit]) -> list[Passage]:
        """Reads them; one that is gone meanwhile is left out."""
        with self._timer.time("fuse"):
            await self._read([hit.id for hit in hits])
            self._forget_older_versions()
        names = {index: index.spec.name for index in set(self._home.values())}
        return [self._passage(hit, names) for hit in hits if hit.id in self._documents]

    def _forget_older_versions(self) -> None:
        """What was read at several times may be of several versions of a document: the newest one holds."""
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
        """BM25 scores for the query with further words; what these have found is among the candidates then."""
        best = [hit.id for hit in first[: expansion.BACKGROUND]]
        with self._timer.time("expand"):
            await self._read_chunks(best)
            # The language of the words is the document's.
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
        """What further words find in an index; adds the scores that the store tells beside it."""
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
        """Take in what a remote search tells beside its hits."""
        self.dense = {**scored.cosines, **self.dense}
        self._chunks = {**scored.chunks, **self._chunks}

    def _words_of(self, ids: Iterable[str]) -> list[Terms]:
        """The words of candidates that were read, where they are known."""
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
        """BM25 scores of these chunks; 0 where they have none of the words."""
        scores = dict.fromkeys(ids, 0.0)
        scores.update(await index.collection.sparse(terms, len(ids), index.scope(self._request.principal), ids))
        return scores

    async def _read(self, ids: Sequence[str]) -> None:
        """Chunks and their documents, both by chunk id; those of versions that are not shown are left out."""
        await self._read_chunks(ids)
        await self._read_records([id_ for id_ in ids if id_ in self._chunks])

    async def _read_chunks(self, ids: Iterable[str]) -> None:
        for index, missing in self._missing(ids, self._chunks).items():
            here = await index.collection.chunks(missing)
            if len(here) < len(missing):
                index.collection.outdated()
            self._chunks.update(here)

    async def _read_records(self, ids: Iterable[str]) -> None:
        """Documents of chunks; a chunk of a version that its record does not name is forgotten."""
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
        """Cosines of each embedding model."""
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
        """The searches that found a chunk by themselves; further words are words."""
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
    """What a remote search told, with cosines as `QueryVector.similarities` has them."""
    if not vector.model.cosine_floor:
        return scored
    cosines = {id_: vector.model.similarity(cosine) for id_, cosine in scored.cosines.items()}
    return replace(scored, dense=vector.similarities(scored.dense), cosines=cosines)
