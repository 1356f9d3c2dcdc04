"""Stores of all kinds, and the services over them, separate for each test."""

import importlib.util
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from causeway_testing.retriever.bench import Bench
from causeway_testing.retriever.qdrant import serving
from causeway_testing.retriever.qdrant_server import running_server
from causeway_testing.retriever.store import MemoryStore
from retriever.concurrency.scheduler import Scheduler
from retriever.ports.store import Store
from retriever.stores.edge import payload_indexes
from retriever.stores.edge.store import EdgeStore
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.store import QdrantStore

EXTENDING = Path(__file__).parents[3] / "docs" / "extending.md"
_EXAMPLE = "retriever.stores.file"


def _blocks() -> list[str]:
    """Return the blocks of code of the section on vector stores: the store, and its registration."""
    section = EXTENDING.read_text().partition("\n## A vector store\n")[2].partition("\n## ")[0]
    return re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Load the store of docs/extending.md as the module that the page names."""
    path = tmp_path_factory.mktemp("example") / "file.py"
    path.write_text(_blocks()[0])
    spec = importlib.util.spec_from_file_location(_EXAMPLE, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[_EXAMPLE] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[_EXAMPLE]


@pytest.fixture
def example_registration() -> str:
    """Return the registration of the store of docs/extending.md."""
    return _blocks()[1]


@pytest.fixture(params=["memory", "edge"])
def kind(request: pytest.FixtureRequest) -> str:
    """Name the store. A test file may override the list with other kinds that `reopen` knows."""
    name: str = request.param
    return name


@pytest.fixture
async def reopen(
    kind: str, tmp_path: Path, example: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[[], Store]]:
    """Yield a function that opens the test's only store, also again after it was closed."""
    if kind.startswith("qdrant-server"):
        async with running_server(shared=kind.endswith("shared")) as opens:
            yield opens
        return
    if kind == "edge-indexed":  # with payload indexes, which normally only large shards have
        monkeypatch.setattr(payload_indexes, "MAX_POINTS_WITHOUT_INDEXES", 0)
        kind = "edge"
    if kind in ("qdrant", "qdrant-shared"):
        layout = Layout(shared=kind == "qdrant-shared")
        async with serving() as server:
            yield lambda: QdrantStore(Connection.from_url(server.url, None, 10.0), layout)
        return
    memory = MemoryStore()
    stores: dict[str, Callable[[], Store]] = {
        "memory": lambda: memory,
        "edge": lambda: EdgeStore(tmp_path / "store", Scheduler()),
        "example": lambda: example.FileStore(tmp_path / "store"),
    }
    yield stores[kind]


@pytest.fixture
async def store(reopen: Callable[[], Store]) -> AsyncIterator[Store]:
    """Open an empty store."""
    opened = reopen()
    yield opened
    await opened.aclose()


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    """Open the services over an empty store of each kind."""
    opened = await Bench.open(store)
    yield opened
    await opened.indexes.aclose()


@pytest.fixture
async def edge_bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """Open the services over an empty store on disk."""
    scheduler = Scheduler()
    opened = await Bench.open(EdgeStore(tmp_path / "edge", scheduler), scheduler)
    yield opened
    await opened.aclose()
