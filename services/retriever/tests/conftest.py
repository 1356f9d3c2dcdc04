"""Stores of both kinds, and the logic over them, each test's own."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from retriever.pace import Pace
from retriever.store.edge import EdgeStore
from retriever.store.memory import MemoryStore
from retriever.store.port import Store
from retriever.testing import Bench


@pytest.fixture(params=["memory", "edge"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens the test's one store, again after it was closed."""
    if request.param == "edge":
        return lambda: EdgeStore(tmp_path / "store", Pace())
    memory = MemoryStore()
    return lambda: memory


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
