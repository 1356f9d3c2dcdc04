"""A cluster of three nodes with three copies. Some of its nodes stop, hang or differ."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import structlog
from causeway_testing.retriever.bench import INDEX, Bench
from causeway_testing.retriever.qdrant import Internal, Server
from causeway_testing.retriever.qdrant_cluster import Cluster, Node, opened, running
from causeway_testing.servers import eventually
from grpc import StatusCode
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.document import Document
from retriever.domain.filter import NO_FILTER
from retriever.domain.index import IndexSpec
from retriever.domain.listing import PageRequest
from retriever.domain.scope import EVERYTHING
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.kind import QDRANT, QdrantSettings
from retriever.stores.qdrant.store import QdrantStore
from servicekit.errors import InvalidRequest, StaleGeneration, Unavailable
from servicekit.principal import LOCAL

SPEC = IndexSpec("local", "notes", "hashed-words-64", 64)
Fault = Callable[[Cluster, Node], Awaitable[None]]


async def kill(cluster: Cluster, node: Node) -> None:
    """Stop a node."""
    await cluster.kill(node)


async def freeze(cluster: Cluster, node: Node) -> None:
    """Freeze a node."""
    cluster.freeze(node)


async def put_until_done(bench: Bench, document: Document, texts: list[str]) -> int:
    """Store a document with repetitions, as ingest does. Return the number of refusals."""
    for refused in range(100):
        try:
            await bench.put(document, texts)
        except Unavailable:
            await asyncio.sleep(0.05)
        except StaleGeneration:
            return refused  # the earlier attempt was applied, but its response was lost
        else:
            return refused
    raise AssertionError("the document was refused 100 times")


@pytest.mark.parametrize("fault", [kill, freeze], ids=["killed", "frozen"])
@pytest.mark.parametrize("number", [0, 1, 2], ids=["first", "second", "highest"])
async def test_one_node_is_unavailable(fault: Fault, number: int) -> None:
    """While any one node is unavailable, searches and upserts succeed. After its return no document is missing."""
    async with running() as cluster, opened(cluster, 0.5) as store:
        bench = await Bench.open(store)
        for name in ("a", "b"):
            await bench.put(Document(name, generation=1), [f"the ferry {name}"])
        await fault(cluster, cluster.nodes[number])
        for round_ in range(3):
            found = {passage.document.document_id for passage in await bench.ask("ferry", top=20)}
            assert found >= {"a", "b"}
            await put_until_done(bench, Document(f"c{round_}", generation=1), [f"the ferry c{round_}"])
            await put_until_done(bench, Document("a", generation=round_ + 2), [f"the ferry a {round_}"])
        if fault is kill:
            await cluster.start(cluster.nodes[number])
        else:
            await cluster.thaw(cluster.nodes[number])
        page = await bench.catalogue.documents(LOCAL, INDEX, NO_FILTER, PageRequest())
        listed = [(document.document_id, document.generation) for document in page.documents]
        assert listed == [("a", 4), ("b", 1), ("c0", 1), ("c1", 1), ("c2", 1)]
        passages = await bench.ask("ferry", top=20)
        assert sorted(passage.text for passage in passages) == [
            "the ferry a 2",
            "the ferry b",
            "the ferry c0",
            "the ferry c1",
            "the ferry c2",
        ]
        await bench.indexes.aclose()


async def test_nodes_are_restarted_one_after_the_other() -> None:
    """All documents that are stored while the nodes restart exist in exactly one version."""
    async with running() as cluster, opened(cluster) as store:
        bench = await Bench.open(store)
        await bench.put(Document("d0", generation=1), ["the ferry 0"])
        written = 1

        async def two_more() -> None:
            target = written + 2
            await eventually(lambda: written >= target)

        async def restart() -> None:
            for node in cluster.nodes:
                await cluster.kill(node)
                await two_more()
                await cluster.start(node)
                await two_more()

        restarting = asyncio.create_task(restart())
        while not restarting.done():
            document = Document(f"d{written % 12}", generation=written + 1)
            await put_until_done(bench, document, [f"the ferry {written}"])
            written += 1
        await restarting
        expected = {f"d{count % 12}": count + 1 for count in range(written)}
        page = await bench.catalogue.documents(LOCAL, INDEX, NO_FILTER, PageRequest())
        assert {document.document_id: document.generation for document in page.documents} == expected
        passages = await bench.ask("ferry", top=100)
        assert {passage.document.document_id: passage.document.generation for passage in passages} == expected
        assert len(passages) == len(expected)
        await bench.indexes.aclose()


@pytest.mark.parametrize("number", [0, 2], ids=["first", "highest"])
async def test_a_partitioned_node(number: int) -> None:
    """A node that only clients reach, but not the other nodes, has old copies and does not notice this. Writes
    succeed. After the first search that reads the node, searches find all stored documents.
    """
    async with running() as cluster, opened(cluster, 0.5) as store:
        bench, partitioned = await Bench.open(store), cluster.nodes[number]
        for name in ("a", "b"):
            await bench.put(Document(name, generation=1), [f"the ferry {name}"])
        store._connection._nodes.sort(key=lambda node: node._server["server.port"] != partitioned.port)
        cluster.cut_off(partitioned)
        await put_until_done(bench, Document("a", generation=2), ["the ferry a"])
        await put_until_done(bench, Document("c", generation=1), ["the ferry c"])
        await bench.ask("ferry", top=20)
        before = partitioned.calls.count("QueryBatch")
        for _ in range(3):
            passages = await bench.ask("ferry", top=20)
            found = [(passage.document.document_id, passage.document.generation) for passage in passages]
            assert sorted(found) == [("a", 2), ("b", 1), ("c", 1)]
        assert partitioned.calls.count("QueryBatch") == before
        await cluster.join(partitioned)
        node = next(node for node in store._connection._nodes if node._server["server.port"] == partitioned.port)
        async with asyncio.timeout(20):
            while node.is_avoided:  # noqa: ASYNC110  # no event signals it
                await asyncio.sleep(0.05)
        assert len(await bench.ask("ferry", top=20)) == 3
        await bench.indexes.aclose()


async def test_a_node_that_failed_is_avoided() -> None:
    """A node that hangs delays at most one attempt. Later calls go to another node at once."""
    async with running() as cluster, opened(cluster, 0.5) as store:
        collection = await store.create(SPEC)
        cluster.freeze(cluster.nodes[0])
        for _ in range(20):
            await collection.count_chunks(EVERYTHING)
        assert sum(node.calls.count("Count") for node in cluster.nodes[1:]) == 20
        assert cluster.nodes[0].calls.count("Count") <= 1


async def test_lost_copies_are_no_reason_to_avoid_a_node() -> None:
    """If no node reads enough copies of a collection, a node that failed is used again as soon as it responds. A
    second failure soon afterwards is not logged.
    """
    async with running() as cluster, opened(cluster, 0.5) as store:
        await (await store.create(SPEC)).publish()

        async def lost(name: str) -> None:
            if name == "Get":
                raise Internal("2 of 2 read operations failed")

        for server_node in cluster.nodes:
            server_node.before = lost
        node = store._connection._nodes[0]
        with structlog.testing.capture_logs() as logs:
            for _ in range(2):
                node.avoid("no answer in time")
                async with asyncio.timeout(20):
                    while node.is_avoided:  # noqa: ASYNC110  # no event signals it
                        await asyncio.sleep(0.05)
        events = [line["event"] for line in logs if line.get("server.port") == cluster.nodes[0].port]
        assert events.count("a Qdrant node is avoided") == 1
        assert events.count("a Qdrant node is used again") == 1


async def test_a_slow_node_is_not_preferred() -> None:
    """After a slow response of a node, the next calls go to another node."""
    async with running() as cluster, opened(cluster, 0.5) as store:
        collection = await store.create(SPEC)

        async def slow(_: str) -> None:
            await asyncio.sleep(0.3)

        cluster.nodes[0].before = slow
        for _ in range(5):
            await collection.count_documents(EVERYTHING)
        assert [node.calls.count("Count") for node in cluster.nodes] == [1, 4, 0]


async def test_an_avoided_node_is_read_when_another_one_hangs() -> None:
    """A read calls an avoided node if too few of the other nodes respond."""
    async with running() as cluster, opened(cluster, 0.5) as store:
        collection = await store.create(SPEC)
        await collection.mark("d")
        store._connection._nodes[0].avoid("a test")
        cluster.freeze(cluster.nodes[1])
        async with asyncio.timeout(10):  # a call may take twice as long
            assert await collection.marked() == ["d"]
        assert cluster.nodes[0].calls[-1] == "Scroll"


async def test_a_transient_failure_is_repeated_at_another_node() -> None:
    """After a transient error or a truncated response, the client repeats the read at another node."""
    async with running() as cluster, opened(cluster) as store:
        collection = await store.create(SPEC)
        await collection.put_record(Document("d", generation=1))
        first = cluster.nodes[0]

        async def failing(_: str) -> None:
            raise Internal("Local shard 2 not found")

        async def without_collection(_: str) -> None:
            raise ValueError("Collection x not found")

        async def without_shard(_: str) -> None:
            raise ValueError("Shard 2 not found")

        async def locked(_: str) -> None:
            raise Internal("Storage locked", StatusCode.FAILED_PRECONDITION)

        for fault in (failing, without_collection, without_shard, locked):
            first.before = fault
            assert await collection.count_documents(EVERYTHING) == 1
        first.before = None
        first.cut_off = 1
        assert await collection.count_documents(EVERYTHING) == 1
        assert [node.calls.count("Count") for node in cluster.nodes] == [5, 5, 0]


async def test_a_call_that_every_node_refuses() -> None:
    """A call that fails at every node raises Unavailable with a short retry time, and logs one warning for each
    node.
    """
    async with running() as cluster, opened(cluster) as store:
        collection = await store.create(SPEC)

        async def failing(_: str) -> None:
            raise Internal("2 of 3 read operations failed")

        nodes: list[Server] = list(cluster.nodes)
        for node in nodes:
            node.before = failing
        with structlog.testing.capture_logs() as logs:
            for _ in range(5):
                with pytest.raises(Unavailable) as refused:
                    await collection.count_documents(EVERYTHING)
                assert refused.value.retry_after == 1
        assert sorted(log["server.port"] for log in logs) == sorted(node.port for node in cluster.nodes)
        assert {log["log_level"] for log in logs} == {"warning"}
        for node in nodes:
            node.before = None


async def test_existing_collections_are_corrected() -> None:
    """Opening a collection raises a write consistency that is too low for consistent reads, and sets the delay
    after which a node also reads another copy.
    """
    async with running() as cluster, opened(cluster) as store:
        collection = await store.create(SPEC)
        await collection.publish()
        name = collection.location.name
        assert cluster.params[name]["read_fan_out_delay_ms"] == 200
        cluster.params[name] = {"replication_factor": 3, "write_consistency_factor": 1}
        async with opened(cluster) as other:
            assert await other.find(SPEC.tenant, SPEC.name) is not None
        assert cluster.params[name] == {
            "replication_factor": 3,
            "write_consistency_factor": 2,
            "read_fan_out_delay_ms": 200,
        }


async def test_creating_an_existing_collection_logs_no_error() -> None:
    """Creating a collection that exists raises Unavailable and logs no error."""
    async with running() as cluster, opened(cluster) as store:
        collection = await store.create(SPEC)
        with structlog.testing.capture_logs() as logs, pytest.raises(Unavailable, match="exists already"):
            await collection.location.collection._create_collection(SPEC.dimension, None)
        assert [log for log in logs if log["log_level"] == "error"] == []


async def test_old_nodes_are_refused() -> None:
    """The start refuses a node of an older version, which would count words of hidden documents. One node may be
    unavailable.
    """
    async with running() as cluster:
        await cluster.kill(cluster.nodes[0])
        async with opened(cluster, 0.5) as store:
            assert store is not None
        await cluster.start(cluster.nodes[0])
        cluster.nodes[2].version = "1.18.0"
        with pytest.raises(Unavailable, match=r"1\.18\.0\. Use version 1\.19 or newer"):
            async with opened(cluster):
                raise AssertionError("an old node was accepted")


async def test_the_hosts_of_the_settings_are_the_nodes() -> None:
    """Each host of the settings is a node. A host without a port gets the URL's port. A wrong host is refused."""
    async with running() as cluster:
        settings = QdrantSettings(qdrant_url="http://qdrant:6334", qdrant_hosts=" , ".join(cluster.hosts))
        store = await QDRANT.open(settings, Scheduler())
        assert isinstance(store, QdrantStore)
        found = sorted(str(node._server["server.port"]) for node in store._connection._nodes)
        assert found == sorted(str(node.port) for node in cluster.nodes)
        await store.aclose()
    near = Connection.from_url("http://qdrant:6335", None, 1.0, hosts=["127.0.0.2", "127.0.0.3:7"])
    assert sorted((node._server["server.address"], node._server["server.port"]) for node in near._nodes) == [
        ("127.0.0.2", 6335),
        ("127.0.0.3", 7),
    ]
    await near.aclose()
    with pytest.raises(InvalidRequest, match="must be an address"):
        Connection.from_url("http://qdrant", None, 1.0, hosts=["127.0.0.1:x"])


@pytest.mark.parametrize(("replicas", "copies", "least"), [(3, 1, 2), (5, 2, 3)])
async def test_a_write_consistency_that_is_too_low_is_refused(replicas: int, copies: int, least: int) -> None:
    """The start refuses a write consistency with which a read can miss a write. The error names the minimum."""
    settings = QdrantSettings(
        qdrant_url="http://127.0.0.1:1", qdrant_replicas=replicas, qdrant_write_consistency=copies
    )
    with pytest.raises(InvalidRequest, match=f"set it to {least} or more"):
        await QDRANT.open(settings, Scheduler())


@pytest.mark.parametrize(("replicas", "copies"), [(2, 1), (3, 2), (5, 3)])
async def test_the_minimum_of_the_write_consistency_is_accepted(replicas: int, copies: int) -> None:
    """The start accepts the minimum of the write consistency, and then calls the server."""
    settings = QdrantSettings(
        qdrant_url="http://127.0.0.1:1", qdrant_replicas=replicas, qdrant_write_consistency=copies
    )
    with pytest.raises(Unavailable, match="cannot be reached"):
        await QDRANT.open(settings, Scheduler())
