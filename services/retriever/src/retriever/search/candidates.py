"""The candidates that the searches of all indexes found, with their scores, fused into one order."""

from collections.abc import Iterable, Mapping, Sequence

from retriever.domain.document import Document
from retriever.domain.query import Mode, Passage, Source
from retriever.domain.ranking import Hit, ranked
from retriever.indexes.open_index import Index
from retriever.ports.remote_searches import Scored
from retriever.ports.store import StoredChunk, Terms
from retriever.ports.term_encoder import TermEncoder
from retriever.search import expansion
from retriever.search.fusion import combined, contenders, reciprocal_rank
from retriever.search.index_search import IndexResults, Request, with_similarities
from retriever.search.step_timer import StepTimer


class Candidates:
    """The candidates of a search.

    Args:
        found: The results of each index.
        request: The query.
        encoder: Computes the terms of passages.
        timer: Times the steps.
    """

    def __init__(
        self, found: Mapping[Index, IndexResults], request: Request, encoder: TermEncoder, timer: StepTimer
    ) -> None:
        self._request = request
        self._encoder = encoder
        self._timer = timer
        self.dense: dict[str, float] = {}
        self.sparse: dict[str, float] = {}
        self._index_by_id: dict[str, Index] = {}
        for index, results in found.items():
            self.dense |= results.dense
            self.sparse |= results.sparse
            self._index_by_id |= dict.fromkeys(results.dense, index) | dict.fromkeys(results.sparse, index)
        self._only_index = next(iter(found)) if len(found) == 1 else None
        self._bound = max(self._upper_bound(results.sparse) for results in found.values())
        self._dense_ids, self._sparse_ids = frozenset(self.dense), frozenset(self.sparse)
        self._chunks: dict[str, StoredChunk] = {}
        self._documents: dict[str, Document] = {}
        for results in found.values():
            if results.scored is not None:
                self._add_scored(results.scored)
                self.sparse = {**results.scored.bm25, **self.sparse}

    async def order(self, limit: int | None = None) -> list[Hit]:
        """Return the candidates ordered by the score of the mode: cosine, BM25 or fused.

        If the mode is VECTORS, the cosines of several models are fused by rank.

        Args:
            limit: Number of candidates that the caller needs; None: all. The result may have more.
        """
        query = self._request.query
        if query.mode is Mode.VECTORS:
            with self._timer.time("fuse"):
                rankings = [ranked(map(Hit._make, cosines.items())) for cosines in self._cosines_by_model()]
            return rankings[0] if len(rankings) == 1 else reciprocal_rank(rankings)
        bm25: Mapping[str, float] = self.sparse
        expands = self._request.options.expand and len(self._index_by_id) >= expansion.MIN_CANDIDATES
        if self._request.fuses_scores and not query.skip_missing_scores:
            await self.add_dense(self._index_by_id)
            with self._timer.time("sparse"):
                needed = expansion.MAX_CANDIDATES if expands else limit
                await self._add_bm25(self.sparse, self._request.terms, self._bound, needed)
        if expands:
            with self._timer.time("fuse"):
                first = self._fused(bm25, expansion.MAX_CANDIDATES)
            bm25 = await self._expanded_scores(first, limit)
        with self._timer.time("fuse"):
            return self._fused(bm25, limit)

    async def add_missing(self, ids: Iterable[str]) -> None:
        """Add the missing BM25 scores of these chunks, and the missing cosines if the query has a vector."""
        ids = list(ids)
        if self._request.vectors:
            await self.add_dense(ids)
        with self._timer.time("sparse"):
            for index, missing in self._missing(ids, self.sparse).items():
                self.sparse.update(await self._sparse_scores(index, self._request.terms[index], missing))

    async def _add_bm25(
        self, bm25: dict[str, float], terms: Mapping[Index, Terms], bound: float, limit: int | None
    ) -> None:
        """Add the missing BM25 scores of the candidates that can be among the best ``limit``.

        Args:
            bm25: The known scores. The missing scores are added.
            terms: The terms for each index.
            bound: No missing score is higher.
            limit: Number of candidates that are needed; None: all.
        """
        needed_ids: Iterable[str] = self._index_by_id
        if self._request.fuses_scores:
            needed_ids = contenders(
                self._cosines_by_model(), bm25, self._request.options.dense_weight, bound, limit
            )
        for index, missing in self._missing(needed_ids, bm25).items():
            bm25 |= (
                await self._sparse_scores(index, terms[index], missing) if bound else dict.fromkeys(missing, 0.0)
            )

    async def add_dense(self, ids: Iterable[str]) -> None:
        """Add the missing cosines of these chunks."""
        with self._timer.time("dense"):
            for index, missing in self._missing(ids, self.dense).items():
                vector = self._request.vectors.get(index.spec.space)
                if vector is not None:
                    scope = index.scope(self._request.principal)
                    cosines = await index.collection.dense(vector.numbers, len(missing), scope, missing)
                    self.dense |= vector.similarities(cosines)

    async def passages(self, hits: Sequence[Hit]) -> list[Passage]:
        """Read the passages of these hits. Leave out passages that were removed meanwhile."""
        with self._timer.time("fuse"):
            await self._read([hit.id for hit in hits])
            self._forget_older_versions()
        names = {index: index.spec.name for index in set(self._index_by_id.values())}
        return [self._passage(hit, names) for hit in hits if hit.id in self._documents]

    def _forget_older_versions(self) -> None:
        """Keep only the newest version of each document, because the reads may have seen different versions."""
        newest: dict[tuple[Index, str], int] = {}
        for id_, document in self._documents.items():
            key = (self._index_by_id[id_], document.document_id)
            newest[key] = max(newest.get(key, 0), document.generation)
        for id_, document in list(self._documents.items()):
            index = self._index_by_id[id_]
            if document.generation < newest[index, document.document_id]:
                del self._documents[id_], self._chunks[id_]
                index.collection.note_stale_read(document.document_id)

    def _fused(self, bm25: Mapping[str, float], limit: int | None) -> list[Hit]:
        weight = self._request.options.dense_weight
        if self._request.fuses_scores:
            return combined(self._cosines_by_model(), bm25, weight, limit)
        sparse_ranking = [hit for hit in ranked(map(Hit._make, bm25.items())) if hit.score > 0]
        if self._request.query.mode is Mode.TEXT:
            return sparse_ranking
        dense_rankings = [ranked(map(Hit._make, cosines.items())) for cosines in self._cosines_by_model()]
        weights = [2 * weight] * len(dense_rankings)
        return reciprocal_rank((*dense_rankings, sparse_ranking), (*weights, 2 * (1 - weight)))

    def _upper_bound(self, found: Mapping[str, float]) -> float:
        """Return the highest possible BM25 score of the chunks that a search did not find."""
        return min(found.values()) if len(found) >= self._request.depth else 0.0

    async def _expanded_scores(self, first: Sequence[Hit], limit: int | None) -> Mapping[str, float]:
        """Return BM25 scores for the expanded query, and add the chunks that it finds to the candidates."""
        best = [hit.id for hit in first[: expansion.MAX_CANDIDATES]]
        with self._timer.time("expand"):
            await self._read_chunks(best)
            # If a chunk has no language, its document's record has it.
            await self._read_records(
                id_ for id_ in best if id_ in self._chunks and not self._chunks[id_].analysis_language
            )
            feedback = self._terms_of(best)
            terms = {index: expansion.expanded(own, feedback) for index, own in self._request.terms.items()}
            bm25: dict[str, float] = {}
            known = set(self._index_by_id)
            bound = 0.0
            for index in dict.fromkeys(self._index_by_id.values()):
                sparse = await self._search_expanded(index, terms[index], bm25, known)
                bound = max(bound, self._upper_bound(sparse))
                bm25 |= sparse
                self._index_by_id |= dict.fromkeys(sparse.keys() - self._index_by_id.keys(), index)
        if self._request.fuses_scores:
            await self.add_dense(id_ for id_ in bm25 if id_ not in known)
        with self._timer.time("expand"):
            await self._add_bm25(bm25, terms, bound, limit)
        return bm25

    async def _search_expanded(
        self, index: Index, terms: Terms, bm25: dict[str, float], known: set[str]
    ) -> Mapping[str, float]:
        """Search an index with the expanded query and return the highest BM25 scores.

        Args:
            index: The index.
            terms: The terms of the expanded query.
            bm25: Receives the other BM25 scores that a remote store returns in the same call.
            known: Ids of the candidates of the first search in all indexes.
        """
        scope = index.scope(self._request.principal, self._request.query.filter)
        remote = self._request.remote(index)
        if remote is None:
            return await index.collection.sparse(terms, self._request.depth, scope)
        vector = self._request.vectors[index.spec.space]
        ids = [id_ for id_ in known if self._index_by_id[id_] is index]
        scored = with_similarities(
            vector, await remote.sparse_with_cosines(vector.numbers, terms, self._request.depth, scope, ids)
        )
        self._add_scored(scored)
        bm25.update(scored.bm25)
        return scored.sparse

    def _add_scored(self, scored: Scored) -> None:
        """Add the cosines and the chunks that a remote search returned with its hits."""
        self.dense = {**scored.cosines, **self.dense}
        self._chunks = {**scored.chunks, **self._chunks}

    def _terms_of(self, ids: Iterable[str]) -> list[Terms]:
        """Return the terms of the candidates that were read and whose language the encoder supports."""
        found = [
            (self._chunks[id_].text, self._chunks[id_].analysis_language or self._documents[id_].analysis_language)
            for id_ in ids
            if id_ in self._chunks
        ]
        return [
            self._encoder.encode_passages([text], language)[0]
            for text, language in found
            if self._encoder.can_tokenize(text, language)
        ]

    async def _sparse_scores(self, index: Index, terms: Terms, ids: list[str]) -> dict[str, float]:
        """Return the BM25 scores of these chunks; 0 for chunks that have none of the terms."""
        scope = index.scope(self._request.principal)
        return dict.fromkeys(ids, 0.0) | await index.collection.sparse(terms, len(ids), scope, ids)

    async def _read(self, ids: Sequence[str]) -> None:
        """Read chunks and their documents. Leave out chunks of versions that are not visible."""
        await self._read_chunks(ids)
        await self._read_records([id_ for id_ in ids if id_ in self._chunks])

    async def _read_chunks(self, ids: Iterable[str]) -> None:
        for index, missing in self._missing(ids, self._chunks).items():
            found = await index.collection.chunks(missing)
            if len(found) < len(missing):
                index.collection.note_stale_read()
            self._chunks.update(found)

    async def _read_records(self, ids: Iterable[str]) -> None:
        """Read the documents of chunks. Remove each chunk whose version differs from its document's record."""
        for index, missing in self._missing(ids, self._documents).items():
            document_ids = {self._chunks[id_].document_id for id_ in missing}
            records = await index.collection.records(list(document_ids))
            for id_ in missing:
                record = records.get(self._chunks[id_].document_id)
                if record is not None and self._chunks[id_].generation in (None, record.generation):
                    self._documents[id_] = record
                else:
                    index.collection.note_stale_read(self._chunks.pop(id_).document_id)

    def _cosines_by_model(self) -> list[dict[str, float]]:
        """Return the cosines, separately for each embedding model."""
        names = {index: index.spec.embedding_model for index in set(self._index_by_id.values())}
        models: dict[str, dict[str, float]] = {}
        if len(set(names.values())) == 1:
            return [self.dense] if self.dense else []
        for id_, cosine in self.dense.items():
            models.setdefault(names[self._index_by_id[id_]], {})[id_] = cosine
        return list(models.values())

    def _missing(self, ids: Iterable[str], known: Mapping[str, object]) -> dict[Index, list[str]]:
        missing = [id_ for id_ in ids if id_ not in known]
        if self._only_index is not None:
            return {self._only_index: missing} if missing else {}
        grouped: dict[Index, list[str]] = {}
        for id_ in missing:
            grouped.setdefault(self._index_by_id[id_], []).append(id_)
        return grouped

    def _source(self, id_: str) -> Source:
        """Return which searches found a chunk. Expansion terms count as sparse search."""
        if id_ not in self._dense_ids:
            return Source.SPARSE
        return Source.BOTH if id_ in self._sparse_ids else Source.DENSE

    def _passage(self, hit: Hit, names: Mapping[Index, str]) -> Passage:
        chunk = self._chunks[hit.id]
        return Passage(
            id=hit.id,
            index=names[self._index_by_id[hit.id]],
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
