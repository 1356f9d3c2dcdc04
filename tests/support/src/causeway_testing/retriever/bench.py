"""The services of the retriever on any store, and documents for tests."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from embedding.models import EmbeddingModel, EmbeddingModels
from embedding.port import Embedder
from retriever.concurrency.scheduler import Scheduler
from retriever.documents.catalogue import Catalogue
from retriever.documents.group_commit import GroupCommit
from retriever.documents.upsert import Upserts
from retriever.domain.changes import Begin, Commit, Upserted, UpsertStep
from retriever.domain.document import Chunk, Document
from retriever.domain.query import Passage, Query
from retriever.embedding.query_vectors import QueryVectors
from retriever.embedding.text_vectors import Embeddings
from retriever.indexes.lifecycle import Indexes
from retriever.indexes.rebuild_jobs import Rebuilds
from retriever.indexes.snapshots import Snapshots
from retriever.languages.detector import LanguageDetector
from retriever.languages.document_analyzer import DocumentAnalyzer
from retriever.ports.store import Store
from retriever.rerankers.registry import Rerankers
from retriever.rerankers.reranking import Reranking
from retriever.rerankers.resilience import ResilientReranker
from retriever.search.query_analyzer import QueryAnalyzer
from retriever.search.retrieval import Retrieval
from retriever.stores.bm25 import Bm25Encoder
from servicekit.principal import LOCAL, Principal

from causeway_testing.embedding import HashingEmbedder
from causeway_testing.retriever.reranker import WordsReranker

DIMENSION = 64
INDEX = "notes"


class Bench:
    """The services of the retriever on a store, with an embedder that counts words. Use `open` to create it."""

    def __init__(self, store: Store, indexes: Indexes, scheduler: Scheduler, **limits: Any) -> None:
        self.store = store
        self.indexes = indexes
        self.scheduler = scheduler
        self.embedder = HashingEmbedder(DIMENSION)
        self.models = EmbeddingModels([EmbeddingModel.of(self.embedder)])
        self.encoder = Bm25Encoder(self.scheduler)
        self.detector = LanguageDetector()
        self.analyzer = DocumentAnalyzer(self.encoder, self.detector)
        self.reranker = WordsReranker()
        self.rerankers = Rerankers([ResilientReranker(self.reranker, "words")])
        self.retrieval = self.retrieval_with(self.embedder)
        self.groups = GroupCommit(indexes)
        self.upserts = Upserts(
            indexes,
            self.groups,
            self.analyzer,
            **{"max_concurrent": 8, "max_waiting": 64, "idle_seconds": 5.0, **limits},
        )
        self.catalogue = Catalogue(indexes)
        self.embeddings = Embeddings(self.models)

    def retrieval_with(self, *embedders: Embedder) -> Retrieval:
        """Return a `Retrieval` with other models."""
        models = EmbeddingModels([EmbeddingModel.of(each) for each in embedders])
        return self.retrieval_over(QueryVectors(models), Reranking(self.rerankers))

    def retrieval_over(self, vectors: QueryVectors, reranking: Reranking | None = None) -> Retrieval:
        """Return a `Retrieval` with other query vectors. By default it has no rerankers."""
        analyzer = QueryAnalyzer(self.encoder, self.detector)
        reranking = reranking or Reranking(Rerankers())
        return Retrieval(self.indexes, vectors, self.encoder, analyzer, self.scheduler, reranking)

    def rebuilds(self, *embedders: Embedder) -> Rebuilds:
        """Return a `Rebuilds` with further models."""
        models = [EmbeddingModel.of(each) for each in (self.embedder, *embedders)]
        return Rebuilds(self.indexes, EmbeddingModels(models), self.analyzer, retry_seconds=0.05)

    def snapshots(self, directory: Path) -> Snapshots:
        """Return a `Snapshots` for a directory."""
        return Snapshots(self.indexes, directory, self.models)

    @classmethod
    async def open(cls, store: Store, scheduler: Scheduler | None = None, **limits: Any) -> Self:
        """Open all indexes of a store. ``scheduler`` must be the store's own scheduler, if the store has one."""
        indexes = await Indexes.open(store)
        for tenant, _ in await store.notes():
            await indexes.of_tenant(tenant)
        return cls(store, indexes, scheduler or Scheduler(), **limits)

    async def aclose(self) -> None:
        """Wait for running work, and close the store."""
        await self.indexes.aclose()
        await self.store.aclose()

    async def chunks(self, texts: Sequence[str], first: int = 0) -> list[Chunk]:
        """Return a chunk for each text, each on its own page."""
        vectors = await self.embedder.embed(texts)
        return [
            Chunk(number, text, text, page=number + 1, headings=("Part",), vector=vector.tolist())
            for number, (text, vector) in enumerate(zip(texts, vectors, strict=True), first)
        ]

    def begin(self, document: Document, index: str = INDEX, principal: Principal = LOCAL) -> Begin:
        """Return the first step of an upsert."""
        return Begin(principal, index, document, self.embedder.model, DIMENSION)

    async def put(
        self, document: Document, texts: Sequence[str], index: str = INDEX, principal: Principal = LOCAL
    ) -> Upserted:
        """Store a document."""
        chunks = await self.chunks(texts)
        messages = [chunks[start : start + 64] for start in range(0, len(chunks), 64)]
        begin = self.begin(document, index, principal)
        return await self.upserts.upsert(steps(begin, *messages, Commit(len(chunks))))

    async def put_with(self, embedder: Embedder, document: Document, texts: Sequence[str], index: str) -> Upserted:
        """Store a document with vectors of another model."""
        vectors = await embedder.embed(texts)
        chunks = [
            replace(chunk, vector=vector.tolist())
            for chunk, vector in zip(await self.chunks(texts), vectors, strict=True)
        ]
        begin = Begin(LOCAL, index, document, embedder.model, embedder.dimension)
        return await self.upserts.upsert(steps(begin, chunks, Commit(len(chunks))))

    async def ask(self, text: str, principal: Principal = LOCAL, **query: Any) -> list[Passage]:
        """Return the passages for a query in the index of the tests."""
        full_query = Query(**{"indexes": (INDEX,), "text": text, **query})
        return list((await self.retrieval.retrieve(principal, full_query)).passages)


async def steps(*each: UpsertStep) -> AsyncIterator[UpsertStep]:
    """Yield the steps of an upsert."""
    for step in each:
        yield step


async def paused_steps(
    begin: Begin,
    first: Sequence[Chunk],
    second: Sequence[Chunk],
    reached: asyncio.Event,
    go_on: asyncio.Event,
    *,
    fails: bool = False,
) -> AsyncIterator[UpsertStep]:
    """Yield an upsert that pauses between two parts of its chunks.

    Args:
        begin: The first message.
        first: The chunks before the pause.
        second: The chunks after the pause.
        reached: Set when the pause begins.
        go_on: Ends the pause.
        fails: Whether to raise ConnectionError after the pause.
    """
    yield begin
    yield first
    reached.set()
    await go_on.wait()
    if fails:
        raise ConnectionError
    yield second
    yield Commit(len(first) + len(second))
