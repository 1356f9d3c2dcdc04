"""Two retrievers on one Qdrant server. The clock of one of them is ten minutes ahead."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

import pytest
import structlog
from causeway_testing.retriever.bench import INDEX, Bench
from causeway_testing.retriever.qdrant import serving
from retriever.domain.document import Document
from retriever.domain.filter import NO_FILTER
from retriever.domain.listing import PageRequest
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.store import QdrantStore
from servicekit.errors import StaleGeneration, Unavailable
from servicekit.principal import LOCAL

T = TypeVar("T")

AHEAD_SECONDS = 600.0
DOCUMENTS = 3
GENERATIONS = 12

_offset: ContextVar[float] = ContextVar("offset", default=0.0)
"""By how many seconds the clock of the retriever that runs the current task is ahead."""


@pytest.fixture(autouse=True)
def _clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the retriever's offset to the time."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + _offset.get())


async def ahead(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine with the clock that is ahead."""
    context = copy_context()
    context.run(_offset.set, AHEAD_SECONDS)
    return await asyncio.create_task(work, context=context)


@asynccontextmanager
async def retrievers() -> AsyncIterator[tuple[Bench, Bench]]:
    """Open a retriever, and one with a clock that is ahead. `ahead` runs the work of the second one."""

    async def begin() -> Bench:
        store = await QdrantStore.open(Connection.from_url(server.url, None, 10.0), Layout())
        return await Bench.open(store)

    async with serving() as server:
        right = await begin()
        fast = await ahead(begin())
        yield right, fast
        await right.aclose()
        await ahead(fast.aclose())


async def write(bench: Bench, first: int, stored: dict[str, int]) -> None:
    """Store every second generation of some documents. Repeat each upsert until it succeeds or is outdated."""
    for generation in range(first, GENERATIONS + 1, 2):
        name = f"d{generation % DOCUMENTS}"
        for _ in range(200):
            try:
                await bench.put(Document(name, generation=generation), [f"the ferry {name} {generation}"])
            except Unavailable:
                await asyncio.sleep(0.02)
            except StaleGeneration:
                break
            else:
                stored[name] = max(stored.get(name, 0), generation)
                break
        else:
            raise AssertionError(f"{name} was refused 200 times")


async def test_clocks_that_differ_lose_no_document() -> None:
    """Both retrievers store the same documents, while the one that is ahead settles abandoned work. Each document
    remains in one version, the latest that a retriever acknowledged.
    """
    async with retrievers() as (right, fast):
        await right.put(Document("d", generation=1), ["the ferry d"])
        stored = {"d": 1}
        done = asyncio.Event()

        async def tidy() -> None:
            while not done.is_set():
                await fast.indexes.tidy()
                await asyncio.sleep(0.01)

        tidying = asyncio.create_task(ahead(tidy()))
        await asyncio.gather(write(right, 1, stored), ahead(write(fast, 2, stored)))
        done.set()
        await tidying
        page = await right.catalogue.documents(LOCAL, INDEX, NO_FILTER, PageRequest())
        assert {document.document_id: document.generation for document in page.documents} == stored
        for found in (await right.ask("ferry", top=100), await ahead(fast.ask("ferry", top=100))):
            assert sorted(
                (passage.document.document_id, passage.document.generation) for passage in found
            ) == sorted(stored.items())


async def test_clocks_that_differ_are_reported() -> None:
    """The retriever that reads a mark with an end far in the future logs the difference once."""
    async with retrievers() as (right, fast):
        await right.put(Document("d", generation=1), ["the ferry d"])
        collection = (await fast.indexes.get("local", INDEX)).collection
        await ahead(collection.mark("d"))
        with structlog.testing.capture_logs() as logs:
            for _ in range(2):
                assert await (await right.indexes.get("local", INDEX)).collection.marked() == ["d"]
        [line] = logs
        assert line["log_level"] == "warning"
        assert 590 < line["seconds"] <= AHEAD_SECONDS
        with structlog.testing.capture_logs() as logs:
            assert await ahead(collection.marked()) == ["d"]
        assert logs == []
        await ahead(collection.unmark("d"))
