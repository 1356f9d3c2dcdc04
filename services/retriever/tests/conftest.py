"""Stores of both kinds, and the logic over them, each test's own."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from qdrant_client import AsyncQdrantClient
from retriever.pace import Pace
from retriever.store.edge import EdgeStore
from retriever.store.memory import MemoryStore
from retriever.store.port import Store
from retriever.store.qdrant import QdrantStore
from retriever.store.qdrant_link import Layout, Link
from retriever.testing import Bench
from retriever.testing_qdrant import LocalLink, serving


@pytest.fixture(params=["memory", "edge"])
def kind(request: pytest.FixtureRequest) -> str:
    """Which store; a test file may have its own list, with ``qdrant`` and ``qdrant-grpc`` besides."""
    name: str = request.param
    return name


@pytest.fixture
async def reopen(kind: str, tmp_path: Path) -> AsyncIterator[Callable[[], Store]]:
    """Opens the test's one store, again after it was closed."""
    memory, client = MemoryStore(), AsyncQdrantClient(":memory:")
    if kind == "qdrant-grpc":
        async with serving(client) as server:
            yield lambda: QdrantStore(Link.to(server.url, None, 10.0), Layout())
        return
    stores: dict[str, Callable[[], Store]] = {
        "memory": lambda: memory,
        "edge": lambda: EdgeStore(tmp_path / "store", Pace()),
        "qdrant": lambda: QdrantStore(LocalLink(client, 10.0), Layout()),
    }
    yield stores[kind]


@pytest.fixture
async def store(reopen: Callable[[], Store]) -> AsyncIterator[Store]:
    """An empty store."""
    opened = reopen()
    yield opened
    await opened.aclose()


@pytest.fixture
async def bench(store: Store) -> AsyncIterator[Bench]:
    """The logic over an empty store of either kind."""
    opened = await Bench.open(store)
    yield opened
    await opened.indexes.aclose()


@pytest.fixture
async def edge_bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """The logic over an empty store on disk."""
    pace = Pace()
    opened = await Bench.open(EdgeStore(tmp_path / "edge", pace), pace)
    yield opened
    await opened.aclose()
