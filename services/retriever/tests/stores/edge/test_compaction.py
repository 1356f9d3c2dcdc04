"""Compaction during use: no document is lost, and a failure leaves the old shard in use."""

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from causeway_testing.retriever.bench import DIMENSION, INDEX, Bench, paused_steps, steps
from causeway_testing.servers import eventually
from hypothesis import given
from hypothesis import strategies as st
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.changes import Commit
from retriever.domain.document import Document, Version
from retriever.domain.index import IndexSpec
from retriever.domain.query import Mode
from retriever.domain.scope import EVERYTHING
from retriever.stores.edge.builder import Limits
from retriever.stores.edge.collection import EdgeCollection
from retriever.stores.edge.compaction import Policy
from retriever.stores.edge.manifest import Tally
from retriever.stores.edge.shard import LiveShard
from retriever.stores.edge.store import EdgeStore
from servicekit import keys
from servicekit.errors import NotFound, Unavailable
from servicekit.principal import LOCAL

pytestmark = pytest.mark.slow

Open = Callable[..., Awaitable[Bench]]
DIRECTORY = keys.collection(LOCAL.tenant, INDEX)


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Open]:
    """Yield a function that opens a bench over the test's store, and close the last one at the end."""
    benches: list[Bench] = []

    async def open_(limits: Limits | None = None, policy: Policy | None = None, exact_up_to: int = 20_000) -> Bench:
        scheduler = Scheduler()
        store = EdgeStore(tmp_path / "store", scheduler, exact_up_to=exact_up_to, policy=policy, limits=limits)
        benches.append(await Bench.open(store, scheduler, idle_seconds=100.0))
        return benches[-1]

    yield open_
    await benches[-1].aclose()


async def live(bench: Bench) -> LiveShard:
    """Return the shard of the tests' index."""
    collection = (await bench.indexes.get(LOCAL.tenant, INDEX)).collection
    assert isinstance(collection, EdgeCollection)
    return collection._live


def texts(name: str, generation: int, count: int = 40) -> list[str]:
    return [f"ferry {name} {generation} {number}" for number in range(count)]


async def put(bench: Bench, name: str, generation: int, count: int = 40) -> None:
    await bench.put(Document(name, generation=generation), texts(name, generation, count))


async def found(bench: Bench) -> list[str]:
    """Return the texts of all chunks."""
    return sorted(passage.text for passage in await bench.ask("ferry", top=1000, mode=Mode.VECTORS))


def files_of(bench: Bench, tmp_path: Path) -> list[str]:
    """Return the paths in the store's directory at the second level."""
    root = tmp_path / "store"
    return sorted(str(path.relative_to(root)) for path in root.glob("*/*"))


async def test_writes_during_a_compaction_are_kept(opened: Open, tmp_path: Path) -> None:
    """Documents that are stored, replaced or deleted during a compaction stay so, even after a restart."""
    bench = await opened(policy=Policy(removed=10**9, added=10**9))  # only the requested compaction runs
    for name in "abcdefgh":
        await put(bench, name, 1)
    compacting = asyncio.create_task(bench.catalogue.compact(LOCAL, INDEX))
    expected = dict.fromkeys("cdefgh", 1)
    rounds = 0
    while not compacting.done() or rounds < 3:
        rounds += 1
        for name in ("c", "d", f"new {rounds % 5}"):
            expected[name] = expected.get(name, 1) + 1
            await put(bench, name, expected[name])
        await bench.catalogue.delete_documents(LOCAL, INDEX, ["a" if rounds == 1 else "b"])
    await compacting
    assert rounds >= 3
    expected_texts = sorted(text for name, generation in expected.items() for text in texts(name, generation))
    assert await found(bench) == expected_texts
    await bench.aclose()
    assert files_of(bench, tmp_path) == [f"{DIRECTORY}/2", f"{DIRECTORY}/index.json"]
    again = await opened()
    assert await found(again) == expected_texts
    (summary,) = await again.catalogue.indexes(LOCAL)
    assert (summary.documents, summary.chunks) == (len(expected), len(expected_texts))


async def test_an_upsert_that_spans_the_swap(opened: Open) -> None:
    """An upsert that begins before the swap of shards and ends after it is complete, or leaves no chunk."""
    bench = await opened()
    await put(bench, "a", 1)
    for ends in (True, False):
        reached, go_on = asyncio.Event(), asyncio.Event()
        chunks = await bench.chunks(texts("b", 1, 100))

        begin = bench.begin(Document("b", generation=1 if ends else 2))
        paused = paused_steps(begin, chunks[:64], chunks[64:], reached, go_on, fails=not ends)
        writing = asyncio.create_task(bench.upserts.upsert(paused))
        await reached.wait()
        await bench.catalogue.compact(LOCAL, INDEX)
        go_on.set()
        if ends:
            await writing
        else:
            with pytest.raises(ConnectionError):
                await writing
        assert await found(bench) == sorted(texts("a", 1) + texts("b", 1, 100))
        collection = (await bench.indexes.get(LOCAL.tenant, INDEX)).collection
        assert await collection.marked() == []
        assert await collection.count_chunks(EVERYTHING) == 140


async def test_compaction_starts_in_the_background(opened: Open, tmp_path: Path) -> None:
    """The store compacts an index in the background after enough removals, and no removed point is left."""
    bench = await opened(policy=Policy(removed=100, removed_share=0.2))
    for name in "ab":
        await put(bench, name, 1, 70)
    await bench.catalogue.delete_documents(LOCAL, INDEX, ["a"])
    assert (await live(bench)).tally.removed < 100
    await bench.catalogue.delete_documents(LOCAL, INDEX, ["b"])
    await eventually(lambda: files_of(bench, tmp_path) == [f"{DIRECTORY}/2", f"{DIRECTORY}/index.json"])
    await eventually(lambda: not any((tmp_path / "store" / ".building").iterdir()))
    assert (await live(bench)).tally == Tally()
    assert await found(bench) == []


async def test_removals_are_remembered(opened: Open) -> None:
    """The count of removals survives a restart."""
    bench = await opened()
    for name in "ab":
        await put(bench, name, 1)
    await bench.catalogue.delete_documents(LOCAL, INDEX, ["a"])
    before = (await live(bench)).tally
    assert before.removed >= 40
    await bench.aclose()
    assert (await live(await opened())).tally.removed == before.removed


sizes = st.integers(0, 10**7)


@given(sizes, sizes, sizes)
def test_a_compaction_is_due_after_enough_changes(added: int, removed: int, points: int) -> None:
    """A compaction is due from a number and a share of changes on, and stays due with more changes. An unchanged
    index is never due.
    """
    policy = Policy()
    due = policy.is_due(Tally(added, removed), points)
    enough_removed = removed >= 1000 and removed >= 0.2 * (points + removed)
    assert due == (enough_removed or (added >= 20_000 and added >= 0.2 * points))
    assert not policy.is_due(Tally(), points)
    if due:
        assert policy.is_due(Tally(added + 1, removed + 1), points)


@pytest.mark.parametrize("limits", [Limits(seconds=0.05), Limits(memory=1024 * 1024)], ids=["time", "memory"])
async def test_a_child_over_its_limits(opened: Open, tmp_path: Path, limits: Limits) -> None:
    """A child that exceeds its time or memory is killed. The old shard remains in use, and no files remain."""
    bench = await opened(limits=limits)
    await put(bench, "a", 1)
    collection = (await bench.indexes.get(LOCAL.tenant, INDEX)).collection
    with pytest.raises(Unavailable):
        await bench.catalogue.compact(LOCAL, INDEX)
    with pytest.raises(Unavailable):
        await collection.persist(tmp_path / "snapshot")
    assert not (tmp_path / "snapshot" / "manifest.json").exists()
    await put(bench, "a", 2)
    assert await found(bench) == sorted(texts("a", 2))
    assert files_of(bench, tmp_path) == [f"{DIRECTORY}/1", f"{DIRECTORY}/index.json"]


async def test_a_full_disk_prevents_compactions(tmp_path: Path) -> None:
    """No compaction starts without disk space for a copy, because a full disk would end the process."""
    scheduler = Scheduler()
    free = shutil.disk_usage(tmp_path).free
    bench = await Bench.open(EdgeStore(tmp_path / "store", scheduler), scheduler)
    await put(bench, "a", 1)
    await (await bench.indexes.get(LOCAL.tenant, INDEX)).collection.persist(tmp_path / "snapshot")
    await bench.aclose()
    bench = await Bench.open(EdgeStore(tmp_path / "store", scheduler, min_free_bytes=2 * free), scheduler)
    collection = (await bench.indexes.get(LOCAL.tenant, INDEX)).collection
    for call in (
        collection.compact(),
        collection.persist(tmp_path / "other"),
        bench.store.restore(collection.spec, tmp_path / "snapshot"),
    ):
        with pytest.raises(Unavailable, match="full"):
            await call
    assert await found(bench) == sorted(texts("a", 1))
    await bench.aclose()


async def test_an_index_is_deleted_during_a_compaction(opened: Open, tmp_path: Path) -> None:
    """An index that is deleted during a compaction stays deleted, and its name can be used at once."""
    bench = await opened()
    await put(bench, "a", 1)
    compacting = asyncio.create_task(bench.catalogue.compact(LOCAL, INDEX))
    await eventually(lambda: any((tmp_path / "store" / ".building").iterdir()))
    await bench.catalogue.delete_index(LOCAL, INDEX)
    await put(bench, "b", 1)
    with pytest.raises(NotFound):
        await compacting
    assert await found(bench) == sorted(texts("b", 1))
    await bench.aclose()
    again = await opened()
    assert await found(again) == sorted(texts("b", 1))


async def test_the_store_is_closed_during_a_compaction(opened: Open, tmp_path: Path) -> None:
    """Closing the store cancels a compaction, loses no document, and leaves no part of the new shard."""
    bench = await opened()
    await put(bench, "a", 1)
    compacting = asyncio.create_task(bench.catalogue.compact(LOCAL, INDEX))
    await eventually(lambda: any((tmp_path / "store" / ".building").glob("*/copy")))
    await bench.aclose()
    with pytest.raises(asyncio.CancelledError):
        await compacting
    assert files_of(bench, tmp_path) == [f"{DIRECTORY}/1", f"{DIRECTORY}/index.json"]
    assert await found(await opened()) == sorted(texts("a", 1))


async def test_concurrent_requests_share_one_compaction(opened: Open, tmp_path: Path) -> None:
    """Concurrent requests share one compaction. A later request starts another one."""
    bench = await opened()
    await put(bench, "a", 1)
    await asyncio.gather(*(bench.catalogue.compact(LOCAL, INDEX) for _ in range(3)))
    assert files_of(bench, tmp_path) == [f"{DIRECTORY}/2", f"{DIRECTORY}/index.json"]
    await bench.catalogue.compact(LOCAL, INDEX)
    assert files_of(bench, tmp_path) == [f"{DIRECTORY}/3", f"{DIRECTORY}/index.json"]


async def test_left_over_files_are_removed(opened: Open, tmp_path: Path) -> None:
    """The start removes files that a crash has left, such as unfinished and replaced shards."""
    bench = await opened()
    await put(bench, "a", 1)
    await bench.aclose()
    root = tmp_path / "store"
    for path in (".building/x/copy", f"{DIRECTORY}/2/segments", f"{DIRECTORY}/7", "bG9jYWw.eA/1"):
        (root / path).mkdir(parents=True)
        (root / path / "file").write_bytes(b"x")
    again = await opened()
    assert sorted(path.name for path in root.iterdir()) == [".building", "LOCK", DIRECTORY]
    assert files_of(again, tmp_path) == [f"{DIRECTORY}/1", f"{DIRECTORY}/index.json"]
    assert await found(again) == sorted(texts("a", 1))


async def test_a_large_index_gets_a_graph(
    opened: Open, record_testsuite_property: Callable[[str, object], None]
) -> None:
    """Above the limit, a vector search uses a graph and finds at least 95 % of the exact results."""
    bench = await opened(exact_up_to=1000)
    source = random.Random(7)

    def unit() -> list[float]:
        vector = [source.gauss(0, 1) for _ in range(DIMENSION)]
        length = sum(number * number for number in vector) ** 0.5
        return [number / length for number in vector]

    for name in range(20):
        chunks = await bench.chunks(texts(str(name), 1, 150))
        random_ = [replace(chunk, vector=unit()) for chunk in chunks]
        parts = [random_[start : start + 64] for start in range(0, 150, 64)]
        await bench.upserts.upsert(steps(bench.begin(Document(str(name), generation=1)), *parts, Commit(150)))
    collection = (await bench.indexes.get(LOCAL.tenant, INDEX)).collection
    queries = [unit() for _ in range(50)]
    exact = [set(await collection.dense(query, 10, EVERYTHING)) for query in queries]
    before = (await live(bench)).shard.info().indexed_vectors_count
    await collection.compact()
    assert (await live(bench)).shard.info().indexed_vectors_count == before + 3000
    graph = [set(await collection.dense(query, 10, EVERYTHING)) for query in queries]
    recall = sum(len(one & other) for one, other in zip(exact, graph, strict=True)) / 500
    record_testsuite_property("graph_recall_at_10", recall)
    assert recall >= 0.95
    assert len(await collection.points_of(Version("3", 1)).__anext__()) == 64


async def test_an_unpublished_index_is_not_compacted(opened: Open) -> None:
    """The compaction of an unpublished index has no effect, and does not publish the index."""
    bench = await opened()
    collection = await bench.store.create(IndexSpec(LOCAL.tenant, "new", "m", DIMENSION))
    await collection.compact()
    assert await collection.count_chunks(EVERYTHING) == 0
    await bench.aclose()
    assert await (await opened()).store.collections() == ()
