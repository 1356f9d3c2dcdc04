"""Nodes that respond, but are slow, busy or full, have another API key, or belong to another cluster."""

import asyncio

import pytest
import structlog
from causeway_testing.retriever.bench import Bench
from causeway_testing.retriever.qdrant import Internal
from causeway_testing.retriever.qdrant_cluster import LAYOUT, Cluster, opened, running
from grpc import StatusCode
from retriever.domain.document import Document
from retriever.domain.index import IndexSpec
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.node import Node
from retriever.stores.qdrant.store import QdrantStore
from servicekit.errors import Unavailable

SPEC = IndexSpec("local", "notes", "hashed-words-64", 64)


async def until_avoided(node: Node, *, avoided: bool) -> None:
    """Wait until a node is avoided, or used again."""
    async with asyncio.timeout(20):
        while node.is_avoided != avoided:  # noqa: ASYNC110  # no event signals it
            await asyncio.sleep(0.02)


async def test_a_slow_node_does_not_hold_up_searches() -> None:
    """A node whose responses are all late is avoided. It is used again when it answers version requests in time."""
    async with running() as cluster, opened(cluster, 2.0) as store:
        collection = await store.create(SPEC)
        slow, known = cluster.nodes[2], store._connection._nodes[2]

        async def late(_: str) -> None:
            await asyncio.sleep(1.0)

        slow.before = late
        await collection.mark("d")
        assert await collection.marked() == ["d"]
        assert known.is_avoided
        listed = slow.calls.count("Scroll")
        async with asyncio.timeout(20):
            while slow.calls.count("HealthCheck") < 4:  # no event signals it
                assert await collection.marked() == ["d"]
                await asyncio.sleep(0.02)
        assert known.is_avoided
        assert slow.calls.count("Scroll") == listed
        slow.before = None
        await until_avoided(known, avoided=False)


async def test_a_node_with_another_key_is_avoided() -> None:
    """If one node refuses the API key, the others answer. The log has one warning. The node is used again when it
    accepts the key.
    """
    async with running() as cluster, opened(cluster) as store:
        bench = await Bench.open(store)
        await bench.put(Document("a", generation=1), ["the ferry"])
        with structlog.testing.capture_logs() as logs:
            cluster.nodes[0].api_key = "another"
            for generation in (2, 3):
                await bench.put(Document("a", generation=generation), ["the ferry"])
                assert [passage.document.generation for passage in await bench.ask("ferry")] == [generation]
        assert [(log["log_level"], log["why"]) for log in logs] == [
            ("warning", "UNAUTHENTICATED: Must provide an API key")
        ]
        known = store._connection._nodes[0]
        assert known.is_avoided
        cluster.nodes[0].api_key = None
        await until_avoided(known, avoided=False)
        await bench.indexes.aclose()


async def test_a_wrong_key_is_reported_at_the_start() -> None:
    """If more than half of the nodes refuse the API key, the start fails with this reason."""
    async with running() as cluster:
        for node in cluster.nodes[1:]:
            node.api_key = "another"
        with pytest.raises(Unavailable, match="refuses the API key"):
            async with opened(cluster):
                raise AssertionError("the key was accepted")


def mixed(first: Cluster, second: Cluster) -> Connection:
    """Return a connection to a node of the first cluster, then to nodes of the second one."""
    hosts = [*first.hosts, *second.hosts[1:]]
    connection = Connection.from_url("http://qdrant", None, 20.0, hosts=hosts)
    connection._nodes.sort(key=lambda node: hosts.index(f"127.0.0.1:{node._server['server.port']}"))
    return connection


async def test_a_node_that_forms_a_separate_cluster() -> None:
    """A node that has lost its disk has no index. It is not used, even after a long time. New indexes are created
    on the other nodes.
    """
    async with running(1) as lone, running() as cluster:
        async with opened(cluster) as store:
            await (await store.create(SPEC)).publish()
        connection = mixed(lone, cluster)
        store = await QdrantStore.open(connection, LAYOUT)
        known = connection._nodes[0]
        assert known.is_avoided
        assert await store.find(SPEC.tenant, SPEC.name) is not None
        await (await store.create(IndexSpec("local", "others", "hashed-words-64", 64))).publish()
        assert "Create" not in lone.nodes[0].calls
        for is_new in (True, False):
            assert known.reason_to_avoid is not None
            assert await known.reason_to_avoid(is_new=is_new) == "it has no index, although another node has one"
        await store.aclose()


async def test_a_node_that_restarts_without_its_disk() -> None:
    """If no call fails while a node loses its disk and restarts, the next `tidy` notices it."""
    async with running(1) as lone, running() as cluster:
        async with opened(cluster) as store:
            await (await store.create(SPEC)).publish()
        store = QdrantStore(mixed(lone, cluster), LAYOUT)
        known = store._connection._nodes[0]
        avoided = [known.is_avoided]
        await store.tidy()
        avoided.append(known.is_avoided)
        assert avoided == [False, True]
        assert await store.find(SPEC.tenant, SPEC.name) is not None
        await store.aclose()


async def test_a_node_that_is_avoided_for_long_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a node responds again after a failure, but must not be used, the reason is logged once."""
    monkeypatch.setattr("retriever.stores.qdrant.node._CATCH_UP_SECONDS", 0.0)
    monkeypatch.setattr("retriever.stores.qdrant.node._WARNING_INTERVAL_SECONDS", 0.0)
    async with running(1) as lone, running() as cluster:
        async with opened(cluster) as store:
            await (await store.create(SPEC)).publish()
        connection = mixed(lone, cluster)
        known = connection._nodes[0]
        with structlog.testing.capture_logs() as logs:
            known.avoid("UNAVAILABLE: away")
            async with asyncio.timeout(20):
                while lone.nodes[0].calls.count("ListAliases") < 3:  # noqa: ASYNC110  # no event signals it
                    await asyncio.sleep(0.02)
        assert [(log["event"], log["why"]) for log in logs] == [
            ("a Qdrant node is avoided", "UNAVAILABLE: away"),
            ("a Qdrant node answers, but is avoided", "it has no index, although another node has one"),
        ]
        await connection.aclose()


@pytest.mark.parametrize(
    "code", [StatusCode.INTERNAL, StatusCode.RESOURCE_EXHAUSTED], ids=lambda code: code.name.lower()
)
async def test_a_server_without_space(code: StatusCode) -> None:
    """While the disk of the only node is full, writes are refused, searches succeed, and the log has the reason.
    Afterwards writes succeed, and no document is lost.
    """

    async def full(name: str) -> None:
        if name in ("Upsert", "Delete", "SetPayload"):
            raise Internal("No space left on device", code)

    async with running(1) as cluster, opened(cluster, layout=Layout()) as store:
        bench = await Bench.open(store)
        await bench.put(Document("a", generation=1), ["the ferry"])
        [node] = cluster.nodes
        node.before = full
        with structlog.testing.capture_logs() as logs:
            with pytest.raises(Unavailable):
                await bench.put(Document("a", generation=2), ["the new ferry"])
            assert [passage.text for passage in await bench.ask("ferry")] == ["the ferry"]
        reasons = [line["why"] for line in logs if line["event"] == "a Qdrant node fails at the moment"]
        assert reasons == [f"{code.name}: Service internal error: No space left on device"]
        node.before = None
        await bench.put(Document("a", generation=2), ["the new ferry"])
        assert [passage.text for passage in await bench.ask("ferry")] == ["the new ferry"]
        await bench.indexes.aclose()


async def test_a_busy_node_does_not_refuse_a_call_for_all() -> None:
    """If one node is out of a resource, the retriever sends the call to another node."""

    async def busy(_: str) -> None:
        raise Internal("Rate limiting exceeded", StatusCode.RESOURCE_EXHAUSTED)

    async with running() as cluster, opened(cluster) as store:
        collection = await store.create(SPEC)
        cluster.nodes[0].before = busy
        await collection.put_record(Document("a", generation=1))
        assert await collection.versions() == {"a": 1}
        assert not store._connection._nodes[0].is_avoided
