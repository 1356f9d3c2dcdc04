"""A cluster of three nodes with three copies: what stops, hangs or differs, and what a retriever makes of it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import structlog
from causeway_testing.retriever.bench import INDEX, Bench
from causeway_testing.retriever.qdrant import Internal, Server
from causeway_testing.retriever.qdrant_cluster import Cluster, Node, opened, running
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
    """End a node."""
    await cluster.kill(node)


async def freeze(cluster: Cluster, node: Node) -> None:
    """Freeze a node."""
    cluster.freeze(node)


async def put_until_done(bench: Bench, document: Document, texts: list[str]) -> int:
    """Store a document as ingest does, which tries again; how often it was refused."""
    for refused in range(100):
        try:
            await bench.put(document, texts)
        except Unavailable:
            await asyncio.sleep(0.05)
        except StaleGeneration:
            return refused  # the try before was applied without an answer
        else:
            return refused
    raise AssertionError("the document was refused 100 times")


@pytest.mark.parametrize("fault", [kill, freeze], ids=["killed", "frozen"])
@pytest.mark.parametrize("number", [0, 1, 2], ids=["first", "second", "highest"])
async def test_one_node_is_away(fault: Fault, number: int) -> None:
    """With any node away every search is answered, documents are stored, and nothing is lost when it is back."""
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
        listed = [(each.document_id, each.generation) for each in page.documents]
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


async def test_nodes_are_restarted_in_turn() -> None:
    """Every node is killed and started while documents are stored: each is there in the end, in one version."""
    async with running() as cluster, opened(cluster) as store:
        bench = await Bench.open(store)
        await bench.put(Document("d0", generation=1), ["the ferry 0"])
        done = asyncio.Event()

        async def restart() -> None:
            for node in cluster.nodes:
                await cluster.kill(node)
                await asyncio.sleep(0.2)
                await cluster.start(node)
                await asyncio.sleep(0.2)
            done.set()

        async def write() -> int:
            count = 1
            while not done.is_set() or count < 12:
                await put_until_done(
                    bench, Document(f"d{count % 12}", generation=count + 1), [f"the ferry {count}"]
                )
                count += 1
            return count

        restarting = asyncio.create_task(restart())
        written = await write()
        await restarting
        expected = {f"d{count % 12}": count + 1 for count in range(written)}
        page = await bench.catalogue.documents(LOCAL, INDEX, NO_FILTER, PageRequest())
        assert {each.document_id: each.generation for each in page.documents} == expected
        passages = await bench.ask("ferry", top=100)
        assert {each.document.document_id: each.document.generation for each in passages} == expected
        assert len(passages) == len(expected)
        await bench.indexes.aclose()


async def test_a_node_that_failed_is_avoided() -> None:
    """A node that hangs costs one try. The calls that follow go to another node at once."""
    async with running() as cluster, opened(cluster, 0.5) as store:
        collection = await store.create(SPEC)
        cluster.freeze(cluster.nodes[0])
        for _ in range(20):
            await collection.count_chunks(EVERYTHING)
        assert sum(node.calls.count("Count") for node in cluster.nodes[1:]) == 20
        assert cluster.nodes[0].calls.count("Count") <= 1


async def test_a_node_that_failed_lately_is_asked_when_another_one_hangs() -> None:
    """Where too few of the preferred nodes answer, those that were avoided are asked, too."""
    async with running() as cluster, opened(cluster, 0.5) as store:
        collection = await store.create(SPEC)
        await collection.mark("d")
        store._connection._nodes[0].failed("a test")
        cluster.freeze(cluster.nodes[1])
        async with asyncio.timeout(10):  # a call may take twice as long
            assert await collection.marked() == ["d"]
        assert cluster.nodes[0].calls[-1] == "Scroll"


async def test_a_transient_failure_is_repeated_at_another_node() -> None:
    """The states in which a node fails for a moment, and an answer that is cut off, are no answers."""
    async with running() as cluster, opened(cluster) as store:
        collection = await store.create(SPEC)
        await collection.put_record(Document("d", generation=1))
        first = cluster.nodes[0]

        async def failing(_: str) -> None:
            raise Internal("Local shard 2 not found")

        async def unknowing(_: str) -> None:
            raise ValueError("Collection x not found")

        async def recovering(_: str) -> None:
            raise ValueError("Shard 2 not found")

        async def locked(_: str) -> None:
            raise Internal("Storage locked", StatusCode.FAILED_PRECONDITION)

        for fault in (failing, unknowing, recovering, locked):
            first.before = fault
            assert await collection.count_documents(EVERYTHING) == 1
        first.before = None
        first.cut_off = 1
        assert await collection.count_documents(EVERYTHING) == 1
        assert [node.calls.count("Count") for node in cluster.nodes] == [5, 5, 0]


async def test_what_every_node_refuses() -> None:
    """Where every node fails, the answer is a 503 with a short Retry-After, and the log has a warning a node."""
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
        assert sorted(each["server.port"] for each in logs) == sorted(node.port for node in cluster.nodes)
        assert {each["log_level"] for each in logs} == {"warning"}
        for node in nodes:
            node.before = None


async def test_existing_collections_are_corrected() -> None:
    """A collection whose writes a read could miss is changed when it is opened."""
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


async def test_a_collection_that_is_there_is_no_fault() -> None:
    """Of two processes that make a collection one is refused, without an error in the log, and goes on with it."""
    async with running() as cluster, opened(cluster) as store:
        collection = await store.create(SPEC)
        with structlog.testing.capture_logs() as logs, pytest.raises(Unavailable, match="there already"):
            await collection.location.collection._create(SPEC.dimension, None)
        assert [each for each in logs if each["log_level"] == "error"] == []


async def test_every_node_is_new_enough() -> None:
    """One node of an older version is refused, because it counts words in hidden documents; one may be away."""
    async with running() as cluster:
        await cluster.kill(cluster.nodes[0])
        async with opened(cluster, 0.5) as store:
            assert store is not None
        await cluster.start(cluster.nodes[0])
        cluster.nodes[2].version = "1.18.0"
        with pytest.raises(Unavailable, match=r"1\.18\.0, 1\.19 or newer"):
            async with opened(cluster):
                raise AssertionError("an old node was taken")


async def test_the_hosts_of_the_settings_are_the_nodes() -> None:
    """Each host is a node, by the URL's scheme and port where it names no port itself; a wrong one is told."""
    async with running() as cluster:
        settings = QdrantSettings(qdrant_url="http://qdrant:6334", qdrant_hosts=" , ".join(cluster.hosts))
        store = await QDRANT.open(settings, Scheduler())
        assert isinstance(store, QdrantStore)
        found = sorted(str(node._server["server.port"]) for node in store._connection._nodes)
        assert found == sorted(str(node.port) for node in cluster.nodes)
        await store.aclose()
    near = Connection.to("http://qdrant:6335", None, 1.0, hosts=["127.0.0.2", "127.0.0.3:7"])
    assert sorted((node._server["server.address"], node._server["server.port"]) for node in near._nodes) == [
        ("127.0.0.2", 6335),
        ("127.0.0.3", 7),
    ]
    await near.aclose()
    with pytest.raises(InvalidRequest, match="must be an address"):
        Connection.to("http://qdrant", None, 1.0, hosts=["127.0.0.1:x"])


@pytest.mark.parametrize(("replicas", "copies", "least"), [(3, 1, 2), (2, 0, 1), (5, 2, 3)])
async def test_reads_and_writes_overlap(replicas: int, copies: int, least: int) -> None:
    """A write consistency that a deciding read can miss is refused at the start, with the one that is needed."""
    settings = QdrantSettings(
        qdrant_url="http://127.0.0.1:1", qdrant_replicas=replicas, qdrant_write_consistency=max(copies, 1)
    )
    if copies:
        with pytest.raises(InvalidRequest, match=f"need {least} or more"):
            await QDRANT.open(settings, Scheduler())
    else:
        with pytest.raises(Unavailable):
            await QDRANT.open(settings, Scheduler())
