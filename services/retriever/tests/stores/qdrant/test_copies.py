"""A cluster whose copies or nodes differ for a while."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from causeway_testing.retriever.qdrant import Internal
from causeway_testing.retriever.qdrant_cluster import LAYOUT, opened, running
from qdrant_client import AsyncQdrantClient, models
from retriever.domain.document import Document
from retriever.domain.index import IndexSpec
from servicekit.errors import Unavailable

SPEC = IndexSpec("local", "notes", "hashed-words-64", 64)


async def test_a_record_on_one_copy_is_found() -> None:
    """A record that one copy already has is found, even if the write has not reached the others."""
    async with running() as cluster, opened(cluster) as store:
        collection = await store.create(SPEC)
        await collection.mark("d")
        cluster.nodes[1].lag = cluster.nodes[2].lag = 0.3
        writing = asyncio.create_task(collection.put_record(Document("d", generation=1)))
        while not writing.done():
            # The first copy has the record long before the others have it.
            first, *_ = cluster.nodes
            on_first_copy = await first.client.count(collection.location.name, _documents(), exact=True)
            found = await collection.records(["d"])
            assert len(found) >= on_first_copy.count
        await writing
        assert (await collection.records(["d"]))["d"].generation == 1


def _documents() -> models.Filter:
    return models.Filter(must=[models.FieldCondition(key="facts", match=models.MatchAny(any=["kind:document"]))])


async def test_copies_that_stay_different() -> None:
    """If a record stays on one copy only, reads of the record and marks of its document fail."""
    async with running() as cluster, opened(cluster) as store:
        collection = await store.create(SPEC)
        await collection.put_record(Document("d", generation=1))
        for node in cluster.nodes[1:]:
            await node.client.delete(
                collection.location.name, models.PointIdsList(points=[collection._record_id("d")])
            )
        with pytest.raises(Unavailable, match="differ"):
            await collection.records(["d"])
        with pytest.raises(Unavailable, match="differ"):
            await collection.mark("d")


async def test_a_mark_on_one_copy_counts() -> None:
    """A mark on a single copy counts."""
    async with running() as cluster, opened(cluster) as store:
        collection = await store.create(SPEC)
        await collection.mark("d")
        for node in cluster.nodes[:2]:
            await node.client.delete(
                collection.location.name, models.PointIdsList(points=[collection._marks.point_id("d")])
            )
        assert await collection.marked() == ["d"]


async def test_pages_leave_out_points_whose_copies_differ() -> None:
    """Pages leave out a point whose copies differ, but no other point."""
    async with running() as cluster, opened(cluster) as store:
        collection = await store.create(SPEC)
        for number in range(9):
            await collection.put_record(Document(f"d{number}", generation=1))
        ids = sorted(collection._record_id(f"d{number}") for number in range(9))
        lost = ids[4]
        for node in cluster.nodes[1:]:
            await node.client.delete(collection.location.name, models.PointIdsList(points=[lost]))
        pages = [
            [str(point.id) for point in page]
            async for page in collection.location.copies.pages(_documents(), fields=True, size=5)
        ]
        assert sorted(id_ for page in pages for id_ in page) == [id_ for id_ in ids if id_ != lost]


async def test_a_listing_waits_for_late_copies() -> None:
    """A listing waits for a record that has not reached all copies. It fails if only one copy has the record."""
    async with running() as cluster, opened(cluster) as store:
        collection = await store.create(SPEC)
        for number in range(3):
            await collection.put_record(Document(f"d{number}", generation=1))
        lost, name = collection._record_id("d1"), collection.location.name
        (record,) = await cluster.nodes[0].client.retrieve(name, [lost], with_payload=True)
        for node in cluster.nodes[1:]:
            await node.client.delete(name, models.PointIdsList(points=[lost]))
        listing = asyncio.create_task(collection.versions())
        async with asyncio.timeout(10):
            while cluster.nodes[2].calls.count("Scroll") < 2:  # noqa: ASYNC110  # no event signals it
                await asyncio.sleep(0.01)
        for node in cluster.nodes[1:]:
            await node.client.upsert(name, [models.PointStruct(id=lost, payload=record.payload, vector={})])
        assert await listing == {"d0": 1, "d1": 1, "d2": 1}
        for node in cluster.nodes[1:]:
            await node.client.delete(name, models.PointIdsList(points=[lost]))
        with pytest.raises(Unavailable, match="differ"):
            await collection.versions()


async def test_a_late_removal_keeps_a_newer_record() -> None:
    """A late removal of a record does not remove the record that was stored since."""
    async with running() as cluster, opened(cluster) as store:
        collection = await store.create(SPEC)
        applied: list[Callable[[AsyncQdrantClient], Awaitable[object]]] = []
        write = cluster.write

        async def recorded(request: object, apply: Callable[[AsyncQdrantClient], Awaitable[object]]) -> object:
            applied.append(apply)
            return await write(request, apply)

        for generation in (1, 2):
            await collection.mark("d")
            await collection.put_record(Document("d", generation=generation))
            if generation == 1:
                cluster.write = recorded  # type: ignore[method-assign]  # records the removal
                await collection.remove_record("d")
                cluster.write = write  # type: ignore[method-assign]  # restores the method
                assert await collection.versions() == {}
            await collection.unmark("d")
        for node in cluster.nodes:
            await applied[-1](node.client)
        assert await collection.versions() == {"d": 2}


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
async def test_a_node_with_outdated_aliases(shared: bool) -> None:
    """If a node has outdated aliases, an index is still found, and is neither replaced nor removed."""
    layout = replace(LAYOUT, shared=shared)
    async with running() as cluster, opened(cluster, layout=layout, lease=1.0) as store:
        first = cluster.nodes[0]
        collection = await store.create(replace(SPEC, name="before"))
        await collection.publish()
        await cluster.kill(first)
        collection = await store.create(SPEC)
        await collection.publish()
        await collection.mark("d")
        await collection.put_record(Document("d", generation=1))
        await collection.unmark("d")
        first.is_behind = True
        await cluster.start(first)
        await asyncio.sleep(1.5)  # the leases expire
        async with opened(cluster, layout=layout, lease=1.0) as other:
            await other.tidy()
            found = await other.find(SPEC.tenant, SPEC.name)
            assert found is not None
            assert await found.versions() == {"d": 1}
            with pytest.raises(Unavailable, match="agree"):
                await (await other.create(SPEC, is_replacement=True)).publish()
        await cluster.catch_up(first)
        assert await collection.versions() == {"d": 1}


async def test_a_node_with_outdated_aliases_is_avoided() -> None:
    """A restarted node is avoided until it has the aliases of the other nodes."""
    async with running() as cluster, opened(cluster, 0.5) as store:
        first, known = cluster.nodes[0], store._connection._nodes[0]
        await cluster.kill(first)
        await (await store.create(SPEC)).publish()
        first.is_behind = True
        await cluster.start(first)
        async with asyncio.timeout(10):
            while "ListAliases" not in first.calls:  # noqa: ASYNC110  # no event signals it
                await asyncio.sleep(0.02)
        assert known.is_avoided
        await cluster.catch_up(first)
        async with asyncio.timeout(10):
            while known.is_avoided:  # noqa: ASYNC110  # no event signals it
                await asyncio.sleep(0.02)


async def test_a_write_without_a_response_is_read_back() -> None:
    """A write whose response is lost succeeds if it was applied, and the lease stays valid."""
    async with running() as cluster, opened(cluster) as store:
        collection = await store.create(SPEC)
        await collection.mark("d")
        lease = collection.leases.held(collection._marks.point_id("d"))
        assert lease is not None
        write = cluster.write

        async def lost(request: object, apply: Callable[[AsyncQdrantClient], Awaitable[object]]) -> object:
            await write(request, apply)
            raise Internal("Failed to apply update")

        cluster.write = lost  # type: ignore[method-assign]  # the fault
        await collection.put_record(Document("d", generation=1))
        cluster.write = write  # type: ignore[method-assign]  # and its end
        assert await collection.versions() == {"d": 1}
        await collection.unmark("d")
        assert await collection.marked() == []


async def test_a_write_that_was_not_applied_fails() -> None:
    """A write that was not applied fails and leaves no record."""
    async with running() as cluster, opened(cluster) as store:
        collection = await store.create(SPEC)
        await collection.mark("d")

        async def refused(request: object, apply: Callable[[AsyncQdrantClient], Awaitable[object]]) -> object:
            raise Internal(f"{request} and {apply}: does not have enough active replicas")

        write = cluster.write
        cluster.write = refused  # type: ignore[method-assign]  # the fault
        with pytest.raises(Unavailable):
            await collection.put_record(Document("d", generation=1))
        cluster.write = write  # type: ignore[method-assign]  # and its end
        assert await collection.versions() == {}
