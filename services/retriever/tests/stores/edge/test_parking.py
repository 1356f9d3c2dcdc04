"""Indexes of the embedded store that are not used are closed, and nothing above the store knows of it."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from causeway_testing.retriever.bench import Bench
from causeway_testing.servers import eventually
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.document import Document
from retriever.domain.query import Query
from retriever.stores.edge.parking import Parking
from retriever.stores.edge.shard import LiveShard
from retriever.stores.edge.store import EdgeStore
from servicekit.errors import NotFound, Unavailable
from servicekit.principal import LOCAL

COUNT = 6
MOST = 2


def bounded(shards: Callable[[], Iterable[LiveShard]]) -> Parking:
    """Few may be open."""
    return Parking(shards, most_open=MOST)


async def filled(directory: Path) -> tuple[EdgeStore, Bench]:
    """A store with indexes of a document each, all used a while ago, the one with the highest number last."""
    store = EdgeStore(directory, Scheduler(), parking=bounded)
    bench = await Bench.open(store)
    for number in range(COUNT):
        await bench.put(Document("d", generation=1), [f"the ferry {number}"], f"index{number}")
    for shard in shards(store).values():
        shard.used_at -= 60
    return store, bench


def shards(store: EdgeStore) -> dict[str, LiveShard]:
    """All shards by the index's name."""
    return {each.spec.name: each.live for each in store._collections}


def resources() -> tuple[int, int]:
    """Threads of the engine and descriptors of this process."""
    names = [Path("/proc/self/task", each, "comm").read_text() for each in os.listdir("/proc/self/task")]
    return sum(name.startswith("edge-") for name in names), len(os.listdir("/proc/self/fd"))


async def found(bench: Bench, index: str) -> list[str]:
    """The texts of an index."""
    return [each.text for each in (await bench.retrieval.retrieve(LOCAL, Query((index,), "ferry"))).passages]


async def test_no_more_than_so_many_are_open(tmp_path: Path) -> None:
    """Those used longest ago are closed, with their threads and descriptors; each opens when it is used."""
    store, bench = await filled(tmp_path)
    before = resources()
    assert await store.parking.look() == COUNT - MOST
    # The engine's threads end a moment after the index is closed.
    await eventually(
        lambda: all(had - has >= COUNT - MOST for had, has in zip(before, resources(), strict=True)), within=30
    )
    assert [name for name, shard in sorted(shards(store).items()) if shard.is_open] == ["index4", "index5"]
    assert len(await store.notes()) == COUNT
    assert [index.spec.name for index in await bench.indexes.of("local")] == [f"index{n}" for n in range(COUNT)]
    assert sum(shard.is_open for shard in shards(store).values()) == MOST
    for number in range(COUNT):
        assert await found(bench, f"index{number}") == [f"the ferry {number}"]
    assert await store.parking.look() == 0  # all of them have just been used
    await bench.aclose()


async def test_what_was_not_used_for_long_is_closed(tmp_path: Path) -> None:
    """Also where few are open. What is written to it afterwards is there when the store is opened again."""
    store, bench = await filled(tmp_path)
    for shard in shards(store).values():
        shard.used_at -= 10_000
    assert await store.parking.look() == COUNT
    await bench.put(Document("e", generation=1), ["the ferry of e"], "index3")
    assert sum(shard.is_open for shard in shards(store).values()) == 1
    await bench.aclose()
    bench = await Bench.open(EdgeStore(tmp_path, Scheduler()))
    assert sorted(await found(bench, "index3")) == ["the ferry 3", "the ferry of e"]
    await bench.aclose()


async def test_what_is_in_use_stays_open(tmp_path: Path) -> None:
    """An index that is not published, is written to, or is rebuilt is not closed under those who work on it."""
    store, bench = await filled(tmp_path)
    shard = shards(store)["index0"]
    async with shard.writing("d"):
        assert not await shard.park()
    await shard.copy(tmp_path / "copy", to_rebuild=True)
    assert not await shard.park()
    shard.forget()
    begun = await store.create((await bench.indexes.get("local", "index1")).spec, beside=True)
    assert not await begun.live.park()
    await begun.drop()
    await bench.aclose()


async def test_a_mark_outlives_its_shard_being_closed(tmp_path: Path) -> None:
    """What this process has marked it still holds."""
    store, bench = await filled(tmp_path)
    collection = (await bench.indexes.get("local", "index0")).collection
    await collection.mark("d")
    assert await shards(store)["index0"].park()
    assert await collection.marked() == ["d"]
    assert await collection.abandoned() == []
    await collection.unmark("d")
    await bench.aclose()


async def test_an_index_that_is_closed_is_rebuilt_and_dropped(tmp_path: Path) -> None:
    """Compacting, dropping and what does not need the engine work on a closed one as on any other."""
    store, bench = await filled(tmp_path)
    parked = shards(store)
    for shard in parked.values():
        assert await shard.park()
    assert parked["index0"].note == b""
    await (await bench.indexes.get("local", "index0")).collection.compact()
    assert await found(bench, "index0") == ["the ferry 0"]
    await bench.indexes.delete("local", "index1")
    with pytest.raises(NotFound):
        await bench.indexes.get("local", "index1")
    await bench.aclose()


async def test_a_closed_index_that_is_damaged(tmp_path: Path) -> None:
    """It is named to who asks for it."""
    store, bench = await filled(tmp_path)
    shard = shards(store)["index0"]
    assert await shard.park()
    for path in (shard.directory / str(shard.current().generation)).iterdir():
        if path.is_file():
            path.write_bytes(b"damaged")
    with pytest.raises(Unavailable, match="cannot be opened"):
        await found(bench, "index0")
    assert await found(bench, "index1") == ["the ferry 1"]
    await bench.aclose()
