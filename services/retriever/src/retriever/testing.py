"""For tests: the retriever's logic put together over any store, and documents to feed it."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from embedding.fake import HashingEmbedder
from embedding.models import EmbeddingModel, EmbeddingModels
from embedding.port import Embedder
from servicekit.principal import LOCAL, Principal

from retriever.catalogue import Catalogue
from retriever.domain import Begin, Chunk, Commit, Document, Upserted, UpsertStep
from retriever.embeddings import Embeddings
from retriever.indexes import Indexes
from retriever.pace import Pace
from retriever.queries import Passage, Query
from retriever.query_vectors import QueryVectors
from retriever.rebuilds import Rebuilds
from retriever.rerankers.fake import WordsReranker
from retriever.rerankers.guarded import Guarded
from retriever.rerankers.rerankers import Rerankers
from retriever.rerankers.reranking import Reranking
from retriever.retrieval import Retrieval
from retriever.snapshots import Snapshots
from retriever.store.bm25 import Bm25Encoder
from retriever.store.port import Store
from retriever.upsert import Upserts

DIMENSION = 64
INDEX = "notes"


class Bench:
    """The logic over a store, with an embedder that knows words only. Made by `open`."""

    def __init__(self, store: Store, indexes: Indexes, pace: Pace, **limits: Any) -> None:
        self.store = store
        self.indexes = indexes
        self.pace = pace
        self.embedder = HashingEmbedder(DIMENSION)
        self.models = EmbeddingModels([EmbeddingModel.of(self.embedder)])
        self.encoder = Bm25Encoder(self.pace)
        self.reranker = WordsReranker()
        self.rerankers = Rerankers([Guarded(self.reranker, "words")])
        self.retrieval = self.retrieval_with(self.embedder)
        self.upserts = Upserts(
            indexes, self.encoder, **{"concurrent": 8, "waiting": 64, "idle_seconds": 5.0, **limits}
        )
        self.catalogue = Catalogue(indexes)
        self.embeddings = Embeddings(self.models)

    def retrieval_with(self, *embedders: Embedder) -> Retrieval:
        """Searches with other models."""
        models = EmbeddingModels([EmbeddingModel.of(each) for each in embedders])
        return Retrieval(
            self.indexes, QueryVectors(models), self.encoder, self.pace, Reranking(self.rerankers), default_top=10
        )

    def rebuilds(self, *embedders: Embedder) -> Rebuilds:
        """Rebuilds, with further models."""
        models = [EmbeddingModel.of(each) for each in (self.embedder, *embedders)]
        return Rebuilds(self.indexes, EmbeddingModels(models), patience=0.05)

    def snapshots(self, directory: Path) -> Snapshots:
        """Snapshots in a directory."""
        return Snapshots(self.indexes, directory, self.models)

    @classmethod
    async def open(cls, store: Store, pace: Pace | None = None, **limits: Any) -> Self:
        """Opens the indexes of a store; ``pace`` is the store's own, where it has one."""
        return cls(store, await Indexes.open(store), pace or Pace(), **limits)

    async def aclose(self) -> None:
        """Waits for what has begun, and closes the store."""
        await self.indexes.aclose()
        await self.store.aclose()

    async def chunks(self, texts: Sequence[str], first: int = 0) -> list[Chunk]:
        """One chunk a text, each on a page of its own."""
        vectors = await self.embedder.embed(texts)
        return [
            Chunk(number, text, text, page=number + 1, headings=("Part",), vector=vector.tolist())
            for number, (text, vector) in enumerate(zip(texts, vectors, strict=True), first)
        ]

    def begin(self, document: Document, index: str = INDEX, principal: Principal = LOCAL) -> Begin:
        """The head of an upsert."""
        return Begin(principal, index, document, self.embedder.model, DIMENSION)

    async def put(
        self, document: Document, texts: Sequence[str], index: str = INDEX, principal: Principal = LOCAL
    ) -> Upserted:
        """Stores a document."""
        chunks = await self.chunks(texts)
        messages = [chunks[start : start + 64] for start in range(0, len(chunks), 64)]
        begin = self.begin(document, index, principal)
        return await self.upserts.upsert(steps(begin, *messages, Commit(len(chunks))))

    async def put_with(self, embedder: Embedder, document: Document, texts: Sequence[str], index: str) -> Upserted:
        """Stores a document with vectors of another model."""
        vectors = await embedder.embed(texts)
        chunks = [
            replace(chunk, vector=vector.tolist())
            for chunk, vector in zip(await self.chunks(texts), vectors, strict=True)
        ]
        begin = Begin(LOCAL, index, document, embedder.model, embedder.dimension)
        return await self.upserts.upsert(steps(begin, chunks, Commit(len(chunks))))

    async def ask(self, text: str, principal: Principal = LOCAL, **query: Any) -> list[Passage]:
        """The passages for a query over the index of the tests."""
        asked = Query(**{"indexes": (INDEX,), "text": text, **query})
        return list((await self.retrieval.retrieve(principal, asked)).passages)


async def steps(*each: UpsertStep) -> AsyncIterator[UpsertStep]:
    """Steps of an upsert, as a stream."""
    for step in each:
        yield step
