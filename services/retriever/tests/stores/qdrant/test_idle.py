"""The number of calls that an idle retriever makes to a Qdrant server, and that creating an index takes."""

import asyncio
import uuid
from collections import Counter
from dataclasses import replace

import pytest
from causeway_testing.retriever.bench import INDEX, Bench
from causeway_testing.retriever.qdrant import Server, serving
from retriever.domain.document import Document
from retriever.domain.index import IndexSpec
from retriever.indexes.lifecycle import Indexes
from retriever.ports.store import ChunkPoint
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.store import QdrantStore

SPEC = IndexSpec("local", INDEX, "hashed-words-64", 64)
LEASE = 1.0


async def opened(server: Server, *, shared: bool, lease: float = 30.0) -> QdrantStore:
    """Open a retriever's store."""
    return await QdrantStore.open(Connection.from_url(server.url, None, 10.0), Layout(shared=shared), lease)


async def publish_index(store: QdrantStore, number: int) -> None:
    """Create and publish an index."""
    await (await store.create(replace(SPEC, name=f"n{number}"))).publish()


@pytest.mark.parametrize(("shared", "first", "second"), [(True, 10, 100), (False, 10, 30)], ids=["shared", "own"])
async def test_idle_calls_do_not_grow(shared: bool, first: int, second: int) -> None:
    """An idle retriever makes the same calls for many indexes as for few. It makes them every 15 seconds."""
    async with serving() as server:
        store = await opened(server, shared=shared)
        counts = []
        for start, end in ((0, first), (first, second)):
            for number in range(start, end):
                await publish_index(store, number)
            indexes = await Indexes.open(store)
            await indexes.tidy()
            server.calls.clear()
            await indexes.tidy()
            counts.append(Counter(server.calls))
            await indexes.aclose()
        assert counts[0] == counts[1]
        expected = {"List": 1, "ListAliases": 1, "Scroll": 2 if shared else 8}
        assert counts[0] == expected
        await store.aclose()


async def test_creating_an_index_takes_a_constant_number_of_calls() -> None:
    """Creating an index takes the same few calls for many indexes as for two."""
    async with serving() as server:
        store = await opened(server, shared=True)
        counts = []
        for start, end in ((0, 2), (2, 60)):
            for number in range(start, end):
                await publish_index(store, number)
            server.calls.clear()
            await publish_index(store, 1000 + end)
            counts.append(Counter(server.calls))
        assert counts[0] == counts[1]
        assert sum(counts[0].values()) <= 8
        space = next(iter(store._locations.spaces.values()))
        assert len(await space.incarnations("index:of-none")) == 0
        await store.aclose()


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
async def test_abandoned_marks_are_removed_in_many_indexes(shared: bool) -> None:
    """Runs of `tidy` remove the marks of a terminated process in any of many indexes."""
    async with serving() as server:
        store, other = [await opened(server, shared=shared, lease=LEASE) for _ in range(2)]
        for number in range(12):
            await publish_index(store, number)
        indexes = await Indexes.open(other)
        mine = await store.find("local", "n11")
        assert mine is not None
        await mine.mark("d")
        assert store._renewing is not None
        store._renewing.cancel()
        async with asyncio.timeout(30):
            while await mine.marked():
                await asyncio.sleep(0.1)
                await indexes.tidy()
        await indexes.aclose()
        await other.aclose()


async def test_a_late_passage_slows_one_search() -> None:
    """Searches leave out a late passage of an old version. Only the first search needs more calls. The next run of
    `tidy` removes the passage.
    """
    async with serving() as server:
        store = await opened(server, shared=False)
        bench = await Bench.open(store)
        for generation in (1, 2):
            await bench.put(Document("d", generation=generation), [f"the ferry {generation}"])
        collection = await store.find("local", INDEX)
        assert collection is not None
        [chunk], [terms] = (
            await bench.chunks(["the ferry 1"]),
            await bench.encoder.encode_documents(["the ferry 1"], "en"),
        )
        await collection.add_chunks(Document("d", generation=1), [ChunkPoint(str(uuid.uuid4()), chunk, terms)])
        for most in (3, 1):
            server.calls.clear()
            assert [passage.text for passage in await bench.ask("ferry", expand=False)] == ["the ferry 2"]
            assert server.calls.count("QueryBatch") <= most
        await bench.indexes.tidy()
        left = await server.client.count(collection.location.name)
        assert left.count == 3  # the entry of the index, the record, its passage
        assert await collection.abandoned() == []
        assert not collection.may_have_abandoned_work
        await bench.aclose()
