"""The embedded store opens and closes its indexes quickly, because searches wait meanwhile."""

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import qdrant_edge as edge
from causeway_testing.retriever.bench import Bench
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.index import IndexSpec
from retriever.storage import files
from retriever.stores.edge.store import EdgeStore
from servicekit import keys
from servicekit.errors import Unavailable

NAMES = ("harbour", "tides")


async def stored(directory: Path) -> None:
    """Store two indexes without documents."""
    store = EdgeStore(directory, Scheduler())
    for name in NAMES:
        await (await store.create(IndexSpec("local", name, "hashed-words-64", 64))).publish()
    await store.aclose()


async def test_an_index_is_opened_at_its_first_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A starting store opens no index. Each index is opened at its first use, once for concurrent calls."""
    await stored(tmp_path)
    opened: list[str] = []
    load = edge.EdgeShard.load

    class Shard:
        @staticmethod
        def load(path: str, config: Any) -> edge.EdgeShard:
            opened.append(Path(path).parent.name)
            return load(path, config)

    monkeypatch.setattr("retriever.stores.edge.store.edge.EdgeShard", Shard)
    store = EdgeStore(tmp_path, Scheduler())
    assert opened == []
    found = await asyncio.gather(*(store.find("local", NAMES[0]) for _ in range(3)))
    assert opened == [keys.collection("local", NAMES[0])]
    assert len(set(map(id, found))) == 1
    assert sorted(collection.spec.name for collection in await store.collections()) == list(NAMES)
    assert len(opened) == len(NAMES)
    await store.aclose()


async def test_a_store_that_ends_while_it_opens_an_index_closes_it(tmp_path: Path) -> None:
    """A store that is closed while it opens an index closes the index, even if the caller is cancelled. The next
    store opens it.
    """
    await stored(tmp_path)
    store = EdgeStore(tmp_path, Scheduler())
    finding = asyncio.create_task(store.find("local", NAMES[0]))
    await asyncio.sleep(0)
    finding.cancel()
    await store.aclose()
    with pytest.raises(asyncio.CancelledError):
        await finding
    store = EdgeStore(tmp_path, Scheduler())
    assert len(await store.collections()) == len(NAMES)
    await store.aclose()


async def test_a_damaged_index_does_not_affect_others(tmp_path: Path) -> None:
    """Each use of a damaged index raises Unavailable with its name, and an index of the same name cannot be
    created. The list has only the other index.
    """
    await stored(tmp_path)
    (shard,) = [path for path in (tmp_path / keys.collection("local", NAMES[0])).iterdir() if path.is_dir()]
    shutil.rmtree(shard)
    bench = await Bench.open(EdgeStore(tmp_path, Scheduler()))
    for _ in range(2):
        with pytest.raises(Unavailable, match=keys.collection("local", NAMES[0])):
            await bench.indexes.get("local", NAMES[0])
    with pytest.raises(Unavailable):
        await bench.indexes.create(IndexSpec("local", NAMES[0], "hashed-words-64", 64))
    assert [index.spec.name for index in await bench.indexes.of_tenant("local")] == [NAMES[1]]
    await bench.aclose()


async def test_a_successor_waits_until_the_store_is_free(tmp_path: Path) -> None:
    """A second process waits until no process owns the directory, or until the time-out."""
    first = EdgeStore(tmp_path, Scheduler())
    waiting = asyncio.create_task(files.wait_until_unlocked(tmp_path, 600))
    await asyncio.wait((waiting,), timeout=0.2)
    assert not waiting.done()
    await files.wait_until_unlocked(tmp_path, 0.1)
    await first.aclose()
    await waiting
    await EdgeStore(tmp_path, Scheduler()).aclose()


async def test_an_unreadable_manifest(tmp_path: Path) -> None:
    """A store with an unreadable manifest does not open. The error names the index. The directory is unlocked."""
    await stored(tmp_path)
    damaged = sorted(path for path in tmp_path.iterdir() if path.is_dir() and path.name != ".building")[1]
    (damaged / "index.json").write_text("{")
    for _ in range(2):
        with pytest.raises(Unavailable, match=damaged.name):
            EdgeStore(tmp_path, Scheduler())


def test_the_retriever_does_not_import_the_qdrant_client() -> None:
    """The retriever does not import the Qdrant client, whose import takes longer than all others."""
    code = "import sys, retriever.main; sys.exit('qdrant_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
