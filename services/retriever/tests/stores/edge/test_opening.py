"""How the embedded store is opened and closed: each second of it is one in which nothing is found."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import qdrant_edge as edge
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.index import IndexSpec
from retriever.stores.edge.store import EdgeStore
from servicekit.errors import Unavailable

NAMES = ("harbour", "tides")
_SECONDS = 30.0


async def stored(directory: Path) -> None:
    """Two indexes without documents."""
    store = EdgeStore(directory, Scheduler())
    for name in NAMES:
        await (await store.create(IndexSpec("local", name, "hashed-words-64", 64))).publish()
    await store.aclose()


async def test_indexes_are_opened_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each waits for the disk: one is begun while another is opened, and all are there in the end."""
    await stored(tmp_path)
    together = threading.Barrier(len(NAMES))
    load = edge.EdgeShard.load

    class Shard:
        @staticmethod
        def load(*arguments: Any) -> edge.EdgeShard:
            together.wait(_SECONDS)  # raises where the others do not come
            return load(*arguments)

    monkeypatch.setattr("retriever.stores.edge.store.edge.EdgeShard", Shard)
    store = EdgeStore(tmp_path, Scheduler())
    assert sorted(each.spec.name for each in await store.collections()) == list(NAMES)
    monkeypatch.undo()
    await store.aclose()


async def test_one_that_is_damaged_is_named(tmp_path: Path) -> None:
    """The store does not open without it, and the directory is free for the next try."""
    await stored(tmp_path)
    damaged = sorted(each for each in tmp_path.iterdir() if each.is_dir() and each.name != ".building")[1]
    (damaged / "index.json").write_text("{")
    for _ in range(2):
        with pytest.raises(Unavailable, match=damaged.name):
            EdgeStore(tmp_path, Scheduler())


def test_the_embedded_engine_starts_without_the_client_of_a_server() -> None:
    """That client takes longer to import than all else of the retriever."""
    code = "import sys, retriever.main; sys.exit('qdrant_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
