"""The embedded store limits its open indexes. The layers above the store do not notice this."""

import asyncio
import contextlib
import os
from pathlib import Path

import pytest
import qdrant_edge as edge
from causeway_testing.retriever.bench import Bench
from causeway_testing.servers import eventually
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.document import Document
from retriever.domain.query import Query
from retriever.storage import files
from retriever.stores.edge import parking
from retriever.stores.edge.loading import damaged, load
from retriever.stores.edge.manifest import Manifest
from retriever.stores.edge.parking import OpenLimits
from retriever.stores.edge.shard import LiveShard
from retriever.stores.edge.store import EdgeStore
from servicekit.errors import NotFound, Unavailable
from servicekit.principal import LOCAL

COUNT = 6
MAX_OPEN = 2


async def filled(directory: Path, open_limits: OpenLimits | None = None) -> tuple[EdgeStore, Bench]:
    """Return a store with some indexes of one document each."""
    store = EdgeStore(directory, Scheduler(), open_limits=open_limits)
    bench = await Bench.open(store)
    for number in range(COUNT):
        await bench.put(Document("d", generation=1), [f"the ferry {number}"], f"index{number}")
    return store, bench


def shards(store: EdgeStore) -> dict[str, LiveShard]:
    """Return all shards by the name of the index."""
    return {collection.spec.name: collection.live for collection in store._collections}


def are_open(store: EdgeStore) -> list[str]:
    """Return the names of the open indexes."""
    return sorted(name for name, shard in shards(store).items() if shard.is_open)


def resources() -> tuple[int, int]:
    """Return the numbers of the engine's threads and of the descriptors of this process."""
    names = []
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
            names.append(Path("/proc/self/task", thread, "comm").read_text())
    return sum(name.startswith("edge-") for name in names), len(os.listdir("/proc/self/fd"))


async def found(bench: Bench, index: str) -> list[str]:
    """Return the texts that a search finds in an index."""
    return [passage.text for passage in (await bench.retrieval.retrieve(LOCAL, Query((index,), "ferry"))).passages]


async def test_the_number_of_open_indexes_is_bounded(tmp_path: Path) -> None:
    """An index that is opened closes the least recently used one, with its thread and its descriptor."""
    before = resources()
    store, bench = await filled(tmp_path, OpenLimits(shards=MAX_OPEN))
    await eventually(lambda: are_open(store) == ["index4", "index5"])
    assert [index.spec.name for index in await bench.indexes.of_tenant("local")] == [
        f"index{n}" for n in range(COUNT)
    ]
    for number in (0, 1, 0, 2):
        assert await found(bench, f"index{number}") == [f"the ferry {number}"]
    await eventually(lambda: are_open(store) == ["index0", "index2"])
    # The engine's threads end a moment after the index is closed. The lock of the directory is one descriptor.
    await eventually(
        lambda: all(has - had <= MAX_OPEN + 1 for had, has in zip(before, resources(), strict=True)), within=30
    )
    assert len(await store.notes()) == COUNT
    await bench.aclose()


async def test_an_index_that_opens_for_the_first_time_closes_another_one(tmp_path: Path) -> None:
    """The bound also holds in a store that was opened with more indexes."""
    _, bench = await filled(tmp_path)
    await bench.aclose()
    store = EdgeStore(tmp_path, Scheduler(), open_limits=OpenLimits(shards=MAX_OPEN))
    bench = await Bench.open(store)
    for number in range(COUNT):
        assert await found(bench, f"index{number}") == [f"the ferry {number}"]
    await eventually(lambda: are_open(store) == ["index4", "index5"])
    await bench.aclose()


async def test_each_index_is_closed_in_a_slice_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing many indexes does not delay other tasks, because each index is closed in a slice of the scheduler."""
    store, bench = await filled(tmp_path)
    iterations: list[int] = []
    iteration = 0
    park = LiveShard.park

    def parked(shard: LiveShard) -> bool:
        iterations.append(iteration)
        return park(shard)

    async def count_iterations() -> None:
        nonlocal iteration
        while True:
            iteration += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(LiveShard, "park", parked)
    counting = asyncio.create_task(count_iterations())
    store.parking._limits = OpenLimits(shards=1)
    store.parking.park_soon()
    await eventually(lambda: are_open(store) == ["index5"])
    counting.cancel()
    assert len(iterations) == len(set(iterations)) == COUNT - 1
    await bench.aclose()


async def test_indexes_that_open_faster_than_others_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If too many indexes are open, each index that opens closes another one at once."""
    monkeypatch.setattr(parking, "_MAX_EXCESS", 1)
    scheduler = Scheduler()
    store = EdgeStore(tmp_path, scheduler, open_limits=OpenLimits(shards=MAX_OPEN))
    bench = await Bench.open(store)
    for number in range(COUNT):
        await bench.put(Document("d", generation=1), [f"the ferry {number}"], f"index{number}")
    await eventually(lambda: len(are_open(store)) == MAX_OPEN)
    async with scheduler.slice():
        for shard in shards(store).values():
            assert shard.shard.info().points_count
            assert len(are_open(store)) <= MAX_OPEN + 1
    await bench.aclose()


async def test_the_memory_of_open_indexes_is_bounded(tmp_path: Path) -> None:
    """A large index closes several small ones. The index in use stays open, even if it alone needs too much."""
    store, bench = await filled(tmp_path)
    small = shards(store)["index0"].memory
    await bench.aclose()
    store = EdgeStore(tmp_path, Scheduler(), open_limits=OpenLimits(memory=4 * small))
    bench = await Bench.open(store)
    for number in range(4):
        await found(bench, f"index{number}")
    assert are_open(store) == ["index0", "index1", "index2", "index3"]
    await bench.put(Document("d", generation=1), [f"the ferry {n}" for n in range(6)], "large")
    await store.parking.check()
    assert are_open(store) == ["large"]
    await found(bench, "index0")
    await eventually(lambda: are_open(store) == ["index0"])
    await found(bench, "large")
    await eventually(lambda: are_open(store) == ["large"])
    await bench.aclose()


async def test_idle_indexes_are_closed(tmp_path: Path) -> None:
    """Idle indexes are closed, even if few indexes are open. Later writes to a closed index are kept."""
    store, bench = await filled(tmp_path)
    assert await store.parking.check() == 0  # all of them have just been used
    for shard in shards(store).values():
        shard.used_at -= 10_000
    assert await store.parking.check() == COUNT
    await bench.put(Document("e", generation=1), ["the ferry of e"], "index3")
    assert are_open(store) == ["index3"]
    await bench.aclose()
    bench = await Bench.open(EdgeStore(tmp_path, Scheduler()))
    assert sorted(await found(bench, "index3")) == ["the ferry 3", "the ferry of e"]
    await bench.aclose()


async def test_an_index_in_use_stays_open(tmp_path: Path) -> None:
    """An index that is not published, is written to, or is rebuilt is not closed."""
    store, bench = await filled(tmp_path, OpenLimits(shards=MAX_OPEN))
    shard = shards(store)["index5"]
    async with shard.writing("d"):
        assert not shard.park()
        for number in range(COUNT):
            assert await found(bench, f"index{number}") == [f"the ferry {number}"]
        assert shard.is_open
    await shard.copy(tmp_path / "copy", to_rebuild=True)
    assert not shard.park()
    shard.stop_recording()
    begun = await store.create((await bench.indexes.get("local", "index1")).spec, is_replacement=True)
    assert not begun.live.park()
    await begun.drop()
    await bench.aclose()


async def test_a_closed_index_keeps_the_number_of_its_removed_points(tmp_path: Path) -> None:
    """The number of removed points decides when an index is compacted. It is stored when the store is closed."""
    store, bench = await filled(tmp_path)
    await bench.put(Document("d", generation=2), ["the ferry 0 again"], "index0")
    removed = shards(store)["index0"].tally.removed
    assert removed
    assert shards(store)["index0"].park()
    await bench.aclose()
    store = EdgeStore(tmp_path, Scheduler())
    bench = await Bench.open(store)
    await found(bench, "index0")
    assert shards(store)["index0"].tally.removed == removed
    await bench.aclose()


async def test_a_mark_outlives_its_shard_being_closed(tmp_path: Path) -> None:
    """A mark stays with its process while its index is closed."""
    store, bench = await filled(tmp_path)
    collection = (await bench.indexes.get("local", "index0")).collection
    await collection.mark("d")
    assert shards(store)["index0"].park()
    assert await collection.marked() == ["d"]
    assert await collection.abandoned() == []
    await collection.unmark("d")
    await bench.aclose()


async def test_an_index_that_is_closed_is_rebuilt_and_dropped(tmp_path: Path) -> None:
    """A closed index can be compacted, searched and dropped, and has its note."""
    store, bench = await filled(tmp_path)
    parked = shards(store)
    for shard in parked.values():
        assert shard.park()
    assert parked["index0"].note == b""
    await (await bench.indexes.get("local", "index0")).collection.compact()
    assert await found(bench, "index0") == ["the ferry 0"]
    await bench.indexes.delete("local", "index1")
    with pytest.raises(NotFound):
        await bench.indexes.get("local", "index1")
    await bench.aclose()


async def test_a_closed_index_is_opened_before_it_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search during the copy removes no files. The engine would remove files if the search opened the shard."""
    store, bench = await filled(tmp_path)
    shard = shards(store)["index0"]
    assert shard.park()
    listed: list[list[Path]] = []

    def copy_tree(source: Path, target: Path) -> None:
        for _ in range(2):
            listed.append(sorted(source.rglob("*")))
            assert shard.shard.info().points_count == 2  # the record and the chunk

    monkeypatch.setattr(files, "copy_tree", copy_tree)
    await shard.copy(tmp_path / "copy", to_rebuild=False)
    assert listed[0] == listed[1]
    await bench.aclose()


async def test_a_closed_index_that_cannot_be_opened_is_not_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compaction fails before it replaces the manifest, so the index is complete when it opens again."""
    store, bench = await filled(tmp_path)
    shard = shards(store)["index0"]
    collection = (await bench.indexes.get("local", "index0")).collection
    assert shard.park()

    def fail(directory: Path, manifest: Manifest) -> edge.EdgeShard:
        if manifest.generation == 1:
            raise damaged(directory)
        return load(directory, manifest)

    with monkeypatch.context() as patched:
        patched.setattr("retriever.stores.edge.shard.load", fail)
        with pytest.raises(Unavailable):
            await collection.compact()
    await bench.aclose()
    bench = await Bench.open(EdgeStore(tmp_path, Scheduler()))
    assert await found(bench, "index0") == ["the ferry 0"]
    await bench.aclose()


async def test_an_index_that_cannot_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure to close an index is logged. Searches of this index and of the index that was opened succeed."""
    store, bench = await filled(tmp_path, OpenLimits(shards=MAX_OPEN))
    await found(bench, "index4")
    park = LiveShard.park

    def fail(shard: LiveShard) -> bool:
        if not park(shard):
            return False
        raise OSError("no space left")

    monkeypatch.setattr(LiveShard, "park", fail)
    for number in (0, 5, 1, 0):
        assert await found(bench, f"index{number}") == [f"the ferry {number}"]
    await eventually(lambda: are_open(store) == ["index0", "index1"])
    await bench.aclose()


async def test_a_closed_index_that_is_damaged(tmp_path: Path) -> None:
    """A search of a closed and damaged index raises Unavailable. Searches of other indexes succeed."""
    store, bench = await filled(tmp_path)
    shard = shards(store)["index0"]
    assert shard.park()
    for path in (shard.directory / str(shard.current().generation)).iterdir():
        if path.is_file():
            path.write_bytes(b"damaged")
    with pytest.raises(Unavailable, match="cannot be opened"):
        await found(bench, "index0")
    assert await found(bench, "index1") == ["the ferry 1"]
    await bench.aclose()
