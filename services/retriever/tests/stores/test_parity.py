"""All stores rank 1,000 passages of real text with real vectors alike."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from causeway_testing.retriever.qdrant import serving
from causeway_testing.retriever.store import MemoryStore
from embedding.cache import default_cache_dir
from embedding.models import EmbeddingModels
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.document import AccessControl, Chunk, Document
from retriever.domain.filter import Filter, MatchAny, Range
from retriever.domain.index import IndexSpec
from retriever.domain.ranking import best
from retriever.domain.scope import EVERYTHING, Scope
from retriever.ports.store import ChunkPoint, Collection, Store, Terms
from retriever.stores.bm25 import Bm25Encoder
from retriever.stores.edge.store import EdgeStore
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.store import QdrantStore
from servicekit import keys

pytestmark = pytest.mark.slow

CORPUS = Path(__file__).parents[4] / "examples" / "corpus"
COUNT = 1000
WORDS, STRIDE = 24, 9
DOCUMENT = 20  # chunks of each document
TOP = 20
TOLERANCE = 0.002
QUERIES = [
    "When was Skerry Line founded?",
    "dogs and bicycles on the ferry",
    "how long do crew rest between shifts",
    "refund of a cancelled crossing",
    "toll for a lorry on the bridge",
    "password rules",
]
SCOPES = [
    EVERYTHING,
    Scope(readers=frozenset({"*"})),
    Scope(readers=frozenset({"*", "group:crew"})),
    Scope(Filter(must=(MatchAny("category", ("even",)), Range("metadata.year", gte=2010, lt=2030)))),
    Scope(Filter(should=(MatchAny("metadata.year", (2001, 2002)), Range("page", lte=3)))),
    Scope(Filter(must_not=(MatchAny("category", ("even",)),)), frozenset({"*"})),
]


@dataclass(frozen=True)
class EmbeddedQuery:
    """The vector and the terms of a query."""

    vector: Sequence[float]
    terms: Terms


@dataclass(frozen=True)
class Corpus:
    """The documents and the queries."""

    documents: list[tuple[Document, list[ChunkPoint]]]
    queries: list[EmbeddedQuery]
    spec: IndexSpec


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """Split the example corpus into pieces, and embed them with the bundled model."""

    async def make() -> Corpus:
        words = [word for path in sorted(CORPUS.glob("*.md")) for word in path.read_text().split()]
        texts = [" ".join(words[start : start + WORDS]) for start in range(0, COUNT * STRIDE, STRIDE)]
        assert len(set(texts)) == COUNT
        models = EmbeddingModels.open(None, os.environ, cache_dir=default_cache_dir(os.environ), workers=2)
        try:
            embedder = models.default.plain
            vectors = await embedder.embed([*texts, *QUERIES])
        finally:
            await models.aclose()
        encoder = Bm25Encoder(Scheduler())
        terms = await encoder.encode_documents(texts, "en")
        spec = IndexSpec("local", "parity", embedder.model, embedder.dimension)
        name = keys.collection(spec.tenant, spec.name)
        documents = []
        for number in range(COUNT // DOCUMENT):
            document = Document(
                f"d{number}",
                category="even" if number % 2 == 0 else "odd",
                metadata_json=b'{"year": %d}' % (2000 + number),
                generation=1,
                chunk_count=DOCUMENT,
                access=AccessControl(groups=("crew",) if number % 3 == 0 else ()),
            )
            points = []
            for chunk_number in range(DOCUMENT):
                place = number * DOCUMENT + chunk_number
                text = texts[place]
                id_ = str(keys.point_id(name, document.document_id, 1, chunk_number, text))
                chunk = Chunk(chunk_number, text, text, page=chunk_number + 1, vector=vectors[place].tolist())
                points.append(ChunkPoint(id_, chunk, terms[place]))
            documents.append((document, points))
        queries = [
            EmbeddedQuery(vectors[COUNT + place].tolist(), encoder.encode_query(query, "en"))
            for place, query in enumerate(QUERIES)
        ]
        return Corpus(documents, queries, spec)

    return asyncio.run(make())


@asynccontextmanager
async def filled(store: Store, corpus: Corpus) -> AsyncIterator[Collection]:
    """Store the corpus."""
    collection = await store.create(corpus.spec)
    for document, points in corpus.documents:
        await collection.add_chunks(document, points)
        await collection.put_record(document)
    yield collection
    await store.aclose()


def assert_alike(found: dict[str, float], expected: dict[str, float], what: object) -> None:
    """Assert equal ids and scores, in the same order for scores that differ by more than the tolerance."""
    assert len(found) == min(TOP, len(expected)), what
    for hit, place in zip(best(found), best(expected), strict=False):
        assert hit.score == pytest.approx(expected[hit.id], rel=TOLERANCE, abs=1e-5), what
        assert expected[hit.id] == pytest.approx(place.score, rel=TOLERANCE, abs=1e-5), what


async def test_all_stores_rank_alike(corpus: Corpus, tmp_path: Path) -> None:
    """For each query, filter and reader, the embedded engine and the stand-in for a Qdrant server find the same
    passages as the fake, which compares all vectors.
    """
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving())
        stores: dict[str, Store] = {
            "edge": EdgeStore(tmp_path, Scheduler()),
            "qdrant": await QdrantStore.open(Connection.from_url(server.url, None, 10.0), Layout()),
        }
        plain = await stack.enter_async_context(filled(MemoryStore(), corpus))
        others = {name: await stack.enter_async_context(filled(store, corpus)) for name, store in stores.items()}
        for number, query in enumerate(corpus.queries):
            scope = SCOPES[number]
            by_meaning = await plain.dense(query.vector, COUNT, scope)
            by_words = await plain.sparse(query.terms, COUNT, scope)
            assert by_meaning
            assert by_words
            for name, collection in others.items():
                what = name, QUERIES[number]
                dense = await collection.dense(query.vector, TOP, scope)
                assert_alike(dense, by_meaning, what)
                sparse = await collection.sparse(query.terms, TOP, scope)
                assert_alike(sparse, by_words, what)
