"""Several retrievers on one Qdrant server share its indexes and do not disturb each other."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from causeway_testing.retriever.bench import INDEX, Bench
from causeway_testing.retriever.checks import assert_nothing_left
from causeway_testing.retriever.qdrant import Server, serving
from retriever.documents.catalogue import Catalogue
from retriever.domain.document import Document
from retriever.domain.filter import NO_FILTER
from retriever.domain.listing import PageRequest
from retriever.domain.query import Mode
from retriever.ports.store import ChunkPoint
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.store import QdrantStore
from servicekit.errors import NotFound, StaleGeneration, Unavailable
from servicekit.principal import LOCAL

LEASE = 1.0


@asynccontextmanager
async def replicas(count: int = 2, lease: float = 10.0) -> AsyncIterator[tuple[Server, list[Bench]]]:
    """Open retrievers, each with its own connection."""
    async with serving() as server:
        benches = []
        for _ in range(count):
            store = await QdrantStore.open(Connection.from_url(server.url, None, 10.0), Layout(), lease)
            benches.append(await Bench.open(store))
        try:
            yield server, benches
        finally:
            for bench in benches:
                await bench.aclose()


async def listed(catalogue: Catalogue) -> list[tuple[str, int]]:
    """Return the documents of the index, with their generations."""
    page = await catalogue.documents(LOCAL, INDEX, NO_FILTER, PageRequest())
    return [(document.document_id, document.generation) for document in page.documents]


async def test_replicas_see_each_others_writes() -> None:
    """One replica finds at once the documents, replacements, deletions and indexes of the other."""
    async with replicas() as (_, (one, other)):
        with pytest.raises(NotFound):
            await other.ask("ferry")
        await one.put(Document("d", generation=1), ["the old ferry", "the old bridge"])
        for mode in Mode:
            assert "the old ferry" in [passage.text for passage in await other.ask("ferry", mode=mode)]
        await other.put(Document("d", generation=2), ["the new ferry"])
        for mode in Mode:
            assert [passage.text for passage in await one.ask("ferry", mode=mode)] == ["the new ferry"]
        with pytest.raises(StaleGeneration):
            await one.put(Document("d", generation=1), ["the old ferry"])
        await one.put(Document("e", generation=1), ["tolls"])
        assert await listed(other.catalogue) == [("d", 2), ("e", 1)]
        assert [summary.documents for summary in await other.catalogue.indexes(LOCAL)] == [2]
        await other.catalogue.delete_documents(LOCAL, INDEX, ["d"])
        assert await listed(one.catalogue) == [("e", 1)]
        await assert_nothing_left(one)
        await other.catalogue.delete_index(LOCAL, INDEX)
        assert await one.catalogue.indexes(LOCAL) == []
        with pytest.raises(NotFound):
            await one.ask("tolls")
        await one.put(Document("f", generation=1), ["tolls again"])
        assert await listed(other.catalogue) == [("f", 1)]


async def test_two_replicas_write_the_same_document() -> None:
    """If two replicas write the same document, one of them gets Unavailable and repeats the upsert. In the end the
    latest version is stored.
    """
    async with replicas() as (_, benches):

        async def put(bench: Bench, generation: int) -> None:
            while True:
                try:
                    texts = [f"ferry {generation} {number}" for number in range(10 + generation)]
                    await bench.put(Document("d", generation=generation), texts)
                except Unavailable:
                    await asyncio.sleep(0.02)
                except StaleGeneration:
                    return
                else:
                    return

        await asyncio.gather(*(put(benches[number % 2], number) for number in range(1, 9)))
        for bench in benches:
            found = sorted(passage.text for passage in await bench.ask("ferry", top=100))
            assert found == sorted(f"ferry 8 {number}" for number in range(18))
        await assert_nothing_left(benches[0])


async def test_a_document_is_found_in_one_version() -> None:
    """While one replica replaces a document, each search at the other finds all chunks of exactly one version."""
    async with replicas() as (_, (one, other)):

        async def replace() -> None:
            for generation in range(2, 12):
                texts = [f"ferry {generation} {number}" for number in range(5 + 10 * (generation % 2))]
                await one.put(Document("d", generation=generation), texts)

        await one.put(Document("d", generation=1), ["ferry 1 0"])
        writing = asyncio.create_task(replace())
        searches = 0
        while not writing.done():
            for mode in Mode:
                passages = await other.ask("ferry", mode=mode, top=100)
                generations = {passage.document.generation for passage in passages}
                assert len(generations) == 1, passages
                (generation,) = generations
                count = 1 if generation == 1 else 5 + 10 * (generation % 2)
                assert sorted(passage.number for passage in passages) == list(range(count))
                searches += 1
        await writing
        assert searches >= 6


async def test_replicas_create_the_same_index() -> None:
    """Replicas that store the first documents of an index concurrently create one index with all documents."""
    async with replicas(3) as (server, benches):
        puts = [
            bench.put(Document(f"d{number}-{round_}", generation=1), [f"the ferry {number}"])
            for number, bench in enumerate(benches)
            for round_ in range(3)
        ]
        for outcome in await asyncio.gather(*puts, return_exceptions=True):
            assert not isinstance(outcome, BaseException), outcome
        for bench in benches:
            assert len(await listed(bench.catalogue)) == 9
        assert len((await server.client.get_collections()).collections) == 1


async def test_a_replica_dies_while_it_writes() -> None:
    """Another replica removes the unfinished version of a terminated replica, and keeps the committed version."""
    async with replicas(lease=LEASE) as (_, (one, other)):
        await one.put(Document("d", generation=1), ["the old ferry"])
        assert isinstance(one.store, QdrantStore)
        assert one.store._renewing is not None
        one.store._renewing.cancel()
        begun = (await one.indexes.get(LOCAL.tenant, INDEX)).collection
        await begun.mark("d")
        document = Document("d", generation=2)
        terms = await one.encoder.encode_documents(["the new ferry"] * 3, "en")
        chunks = await one.chunks(["the new ferry"] * 3)
        points = [
            ChunkPoint(str(uuid.uuid4()), chunk, chunk_terms)
            for chunk, chunk_terms in zip(chunks, terms, strict=True)
        ]
        await begun.add_chunks(document, points)
        assert [passage.text for passage in await other.ask("ferry")] == ["the old ferry"]
        collection = (await other.indexes.get(LOCAL.tenant, INDEX)).collection
        async with asyncio.timeout(60):
            while await collection.marked():
                await asyncio.sleep(0.2)
                await other.indexes.tidy()
        await assert_nothing_left(other)
        assert await listed(other.catalogue) == [("d", 1)]
