"""Leases of documents: one process writes a document at a time, and a late write changes no newer version."""

import asyncio
import itertools
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from causeway_testing.retriever.bench import INDEX, Bench
from causeway_testing.retriever.qdrant import serving
from causeway_testing.retriever.qdrant_stores import LEASE, SPEC, kill, opened, two
from retriever.domain.document import Chunk, Document, Version
from retriever.domain.scope import EVERYTHING
from retriever.ports.store import REBUILD, ChunkPoint, Terms
from retriever.stores.qdrant.leases import renew_all
from servicekit import keys
from servicekit.errors import Unavailable
from servicekit.principal import LOCAL


def version(generation: int, count: int) -> tuple[Document, list[ChunkPoint]]:
    """Return a version of a document with its chunks."""
    document = Document("d", generation=generation, chunk_count=count)
    points = [
        ChunkPoint(
            str(keys.point_id("c", "d", generation, number, "ferry")),
            Chunk(number, "ferry", "ferry", 1, (), [1.0, *[0.0] * 63]),
            Terms((1,), (1.0,)),
        )
        for number in range(count)
    ]
    return document, points


async def test_only_one_process_writes_a_document() -> None:
    """While one process has marked a document, other processes cannot mark it, even after the lease's duration."""
    async with two() as (mine, theirs):
        await mine.mark("d")
        for _ in range(4):
            with pytest.raises(Unavailable, match="another process"):
                await theirs.mark("d")
            await asyncio.sleep(LEASE / 2)
        assert await theirs.abandoned() == []
        await theirs.mark("e")
        await theirs.unmark("d")
        assert sorted(await mine.marked()) == ["d", "e"]
        await mine.unmark("d")
        await theirs.mark("d")
        await mine.mark(REBUILD)
        with pytest.raises(Unavailable, match=r"The index is being rebuilt by another process\."):
            await theirs.mark(REBUILD)


async def test_another_process_takes_over() -> None:
    """Another process takes over the documents of a killed process. The killed one can write nothing afterwards."""
    async with serving() as server, AsyncExitStack() as stack:
        one = await stack.enter_async_context(opened(server))
        other = await stack.enter_async_context(opened(server))
        mine = await one.create(SPEC)
        await mine.publish()
        theirs = await other.find(SPEC.tenant, SPEC.name)
        assert theirs is not None
        await mine.mark("d")
        await kill(one)
        async with asyncio.timeout(60):
            while await theirs.abandoned() != ["d"]:  # noqa: ASYNC110  # no event signals it
                await asyncio.sleep(0.1)
        await theirs.mark("d")
        await theirs.put_record(Document("d", generation=2))
        for call in (
            mine.put_record(Document("d", generation=1)),
            mine.remove_record("d"),
            mine.remove_chunks("d", None),
            mine.unmark("d"),
        ):
            with pytest.raises(Unavailable):
                await call
        assert await theirs.versions() == {"d": 2}
        assert await theirs.marked() == ["d"]


async def test_a_freeze_that_fails_blocks_no_commits() -> None:
    """A process is about to commit for longer than another one waits to freeze the index. Later it may commit."""
    async with two(lease=30.0) as (mine, theirs):
        await theirs.mark("d")
        await theirs.put_record(Document("d", generation=1))
        with pytest.raises(TimeoutError):
            await mine.freeze(0.1)
        await theirs.unmark("d")
        await theirs.mark("e")
        await theirs.put_record(Document("e", generation=1))


async def test_a_freeze_that_fails_keeps_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server fails when the process gives up the lease of a freeze. The process does not renew this lease."""

    async def fail(_: object) -> None:
        raise Unavailable("The server fails.")

    async with two(lease=30.0) as (mine, theirs):
        await theirs.mark("d")
        await theirs.put_record(Document("d", generation=1))
        monkeypatch.setattr(mine, "unmark", fail)
        with pytest.raises(TimeoutError):
            await mine.freeze(0.1)
        assert not mine.leases


async def test_settling_is_repeated_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server fails while the retriever removes the chunks of an old version, or a record. The retriever removes
    the marks later, although it renews their leases.
    """

    async def fail(*_: object, **__: object) -> None:
        raise Unavailable("The server fails.")

    async with serving() as server, opened(server, lease=30.0) as store:
        bench = await Bench.open(store)
        await bench.put(Document("d", generation=1), ["ferry"])
        await bench.put(Document("e", generation=1), ["ferry"])
        collection = (await bench.indexes.get(LOCAL.tenant, INDEX)).collection
        with monkeypatch.context() as patch:
            patch.setattr(collection, "remove_chunks", fail)
            with pytest.raises(Unavailable):
                await bench.put(Document("d", generation=2), ["harbour"])
            with pytest.raises(Unavailable):
                await bench.catalogue.delete_documents(LOCAL, INDEX, ["e"])
        assert sorted(await collection.marked()) == ["d", "e"]
        await bench.indexes.tidy()
        assert await collection.marked() == []
        assert await collection.count_chunks(EVERYTHING) == 1
        with monkeypatch.context() as patch:
            patch.setattr(collection, "remove_record", fail)
            with pytest.raises(Unavailable):
                await bench.catalogue.delete_documents(LOCAL, INDEX, ["d"])
        assert await collection.marked() == []
        assert await collection.versions() == {"d": 2}
        await bench.indexes.aclose()


async def test_a_record_that_has_changed_is_not_replaced() -> None:
    """A process does not replace a record that another process has written since the mark."""
    async with two(lease=30.0) as (mine, theirs):
        await mine.mark("d")
        await mine.put_record(Document("d", generation=1))
        await theirs.put_record(Document("d", generation=5))  # without a mark, which no retriever does
        with pytest.raises(Unavailable, match="another process"):
            await mine.put_record(Document("d", generation=2))
        assert await theirs.versions() == {"d": 5}


async def test_a_late_removal_spares_a_newer_version() -> None:
    """A process pauses for longer than its lease just before it removes passages. It removes none that another
    process has stored since.
    """
    async with serving() as server, AsyncExitStack() as stack:
        one = await stack.enter_async_context(opened(server, lease=LEASE))
        other = await stack.enter_async_context(opened(server, lease=LEASE))
        mine = await one.create(SPEC)
        await mine.publish()
        theirs = await other.find(SPEC.tenant, SPEC.name)
        assert theirs is not None
        await mine.mark("d")
        await mine.add_chunks(*version(1, 3))
        await mine.add_chunks(*version(2, 3))
        await mine.put_record(version(2, 3)[0])
        arrived, may_go_on = asyncio.Event(), asyncio.Event()

        async def held(name: str) -> None:
            if name == "Delete" and not arrived.is_set():
                arrived.set()
                await may_go_on.wait()

        server.before = held
        removal = asyncio.create_task(mine.remove_chunks("d", keep=2))
        await arrived.wait()
        await kill(one)
        async with asyncio.timeout(60):
            while await theirs.abandoned() != ["d"]:  # noqa: ASYNC110  # no event signals it
                await asyncio.sleep(0.1)
        await theirs.mark("d")
        await theirs.add_chunks(*version(3, 3))
        await theirs.put_record(version(3, 3)[0])
        await theirs.remove_chunks("d", keep=3)
        await theirs.unmark("d")
        may_go_on.set()
        await removal
        assert len(await theirs.chunks_of(Version("d", 3), 0, 10)) == 3
        assert await theirs.count_chunks(EVERYTHING) == 3


async def test_a_late_renewal_does_not_bring_back_a_lease() -> None:
    """A process pauses for longer than its lease. Meanwhile another one writes the document and gives up its lease.
    The first process renews its own lease before it notices, but may write nothing.
    """
    async with serving() as server, AsyncExitStack() as stack:
        one = await stack.enter_async_context(opened(server))
        other = await stack.enter_async_context(opened(server))
        mine = await one.create(SPEC)
        await mine.publish()
        theirs = await other.find(SPEC.tenant, SPEC.name)
        assert theirs is not None
        await mine.mark("d")
        await kill(one)
        async with asyncio.timeout(60):
            while await theirs.abandoned() != ["d"]:  # noqa: ASYNC110  # no event signals it
                await asyncio.sleep(0.1)
        await theirs.mark("d")
        await theirs.remove_chunks("d", None)
        await theirs.unmark("d")
        await mine.leases.renew()
        with pytest.raises(Unavailable, match="taken over"):
            await mine.put_record(Document("d", generation=1))
        assert await theirs.versions() == {}
        assert await theirs.marked() == []


async def test_leases_of_several_indexes_are_renewed_together() -> None:
    """The renewal of one index does not wait for the renewal of another one, which a hanging node may delay."""
    async with serving() as server, opened(server, lease=30.0) as store:
        collections = [await store.create(replace(SPEC, name=name)) for name in ("notes", "letters")]
        for collection in collections:
            await collection.publish()
            await collection.mark("d")
        both = asyncio.Barrier(2)
        renewed: list[str] = []

        async def together(name: str) -> None:
            if name == "Upsert":
                await both.wait()
                renewed.append(name)

        server.before = together
        await renew_all([collection.leases for collection in collections])
        server.before = None
        assert renewed == ["Upsert"] * 2


async def test_a_renewal_after_the_last_lease_writes_nothing() -> None:
    """A renewal waits for another one. Meanwhile the process forgets its only lease. The server would refuse a
    write of no points, and the log would have an error.
    """
    async with serving() as server, opened(server, lease=30.0) as store:
        collection = await store.create(SPEC)
        await collection.publish()
        await collection.mark("d")
        arrived, may_go_on = asyncio.Event(), asyncio.Event()
        writes = []

        async def held(name: str) -> None:
            if name == "Upsert":
                writes.append(name)
                arrived.set()
                await may_go_on.wait()

        server.before = held
        first = asyncio.create_task(collection.leases.renew())
        await arrived.wait()
        second = asyncio.create_task(collection.leases.renew())
        await asyncio.sleep(0)
        collection.leases.forget(str(keys.mark_point_id(keys.collection(SPEC.tenant, SPEC.name), "d")))
        may_go_on.set()
        await asyncio.gather(first, second)
        server.before = None
        assert writes == ["Upsert"]


@pytest.mark.parametrize("generation", [0, 5], ids=["new", "replaced"])
async def test_a_late_record_does_not_bring_back_a_document(generation: int) -> None:
    """A process pauses before it writes a record. Meanwhile another one removes the document and its passages. In
    the end the late record does not exist, and its writer gets an error.
    """
    async with serving() as server, AsyncExitStack() as stack:
        one = await stack.enter_async_context(opened(server))
        other = await stack.enter_async_context(opened(server))
        mine = await one.create(SPEC)
        await mine.publish()
        theirs = await other.find(SPEC.tenant, SPEC.name)
        assert theirs is not None
        await mine.mark("d")
        if generation:
            await mine.put_record(version(generation, 0)[0])
        document, chunks = version(generation + 1, 2)
        await mine.add_chunks(document, chunks)
        arrived, may_go_on = asyncio.Event(), asyncio.Event()
        upserts = itertools.count(1)

        async def held(name: str) -> None:
            if name == "Upsert" and next(upserts) == 2:  # the first one renews the lease
                arrived.set()
                await may_go_on.wait()

        await kill(one)
        server.before = held
        writing = asyncio.create_task(mine.put_record(document))
        await arrived.wait()
        async with asyncio.timeout(60):
            while await theirs.abandoned() != ["d"]:  # noqa: ASYNC110  # no event signals it
                await asyncio.sleep(0.1)
        await theirs.mark("d")
        await theirs.remove_record("d")
        await theirs.remove_chunks("d", None)
        await theirs.unmark("d")
        may_go_on.set()
        with pytest.raises(Unavailable):
            await writing
        assert await theirs.versions() == {}
