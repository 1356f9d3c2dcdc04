"""Writes to a cluster whose leader of writes is dead or hangs."""

from causeway_testing.retriever.bench import Bench
from causeway_testing.retriever.qdrant_cluster import opened, running
from retriever.domain.document import Document
from retriever.domain.index import IndexSpec

SPEC = IndexSpec("local", "notes", "hashed-words-64", 64)


async def test_a_write_waits_until_a_hanging_node_is_excluded() -> None:
    """The leader of the writes hangs. The first write takes as long as the other nodes need to exclude the leader.
    The write is not refused.
    """
    async with running(forward_seconds=1.0) as cluster, opened(cluster, 0.1) as store:
        bench = await Bench.open(store)
        await bench.put(Document("a", generation=1), ["the ferry"])
        cluster.freeze(cluster.nodes[2])
        await bench.put(Document("a", generation=2), ["the ferry"])
        assert len(cluster.nodes[2].outdated) == 1
        assert [passage.document.generation for passage in await bench.ask("ferry")] == [2]
        await bench.indexes.aclose()


async def test_a_write_is_repeated_when_all_nodes_have_excluded_the_leader() -> None:
    """The leader of the writes hangs. The repeated write does not wait for it again."""
    async with running(forward_seconds=1.0) as cluster, opened(cluster, 0.5) as store:
        collection = await store.create(SPEC)
        called, leader = cluster.nodes[0], cluster.nodes[2]
        excluded: list[bool] = []

        async def before(name: str) -> None:
            if name == "Upsert":
                excluded.append(collection.location.name in leader.outdated)

        cluster.freeze(leader)
        called.before = before
        await collection.put_record(Document("d", generation=1))
        assert excluded == [False, True]


async def test_a_write_is_repeated_where_the_leader_is_excluded() -> None:
    """The leader of the writes is dead. The called node reports a failure, excludes the leader, and receives the
    write again.
    """
    async with running() as cluster, opened(cluster) as store:
        collection = await store.create(SPEC)
        await cluster.kill(cluster.nodes[2])
        before = cluster.nodes[0].calls.count("Upsert")
        await collection.put_record(Document("d", generation=1))
        assert cluster.nodes[0].calls.count("Upsert") == before + 2
        assert cluster.nodes[1].calls.count("Upsert") == 0
        assert await collection.versions() == {"d": 1}
