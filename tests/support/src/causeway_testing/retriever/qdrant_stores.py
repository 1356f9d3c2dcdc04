"""Stores of several processes on one stand-in for a Qdrant server, for tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from retriever.domain.index import IndexSpec
from retriever.stores.qdrant.collection import QdrantCollection
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.store import QdrantStore

from causeway_testing.retriever.qdrant import Server, serving

SPEC = IndexSpec("local", "notes", "hashed-words-64", 64)
LEASE = 1.0
"""The seconds of a lease, short enough for a test to wait for its end."""


@asynccontextmanager
async def opened(server: Server, layout: Layout | None = None, lease: float = LEASE) -> AsyncIterator[QdrantStore]:
    """Open a store on a server, as a separate process does."""
    store = await QdrantStore.open(Connection.from_url(server.url, None, 5.0), layout or Layout(), lease)
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def two(lease: float = LEASE) -> AsyncIterator[tuple[QdrantCollection, QdrantCollection]]:
    """Yield the same collection, opened by two stores as by two processes."""
    async with serving() as server, opened(server, lease=lease) as one, opened(server, lease=lease) as other:
        mine = await one.create(SPEC)
        await mine.publish()
        theirs = await other.find(SPEC.tenant, SPEC.name)
        assert theirs is not None
        yield mine, theirs


async def kill(store: QdrantStore) -> None:
    """Stop the renewal of leases, as when the process is killed."""
    task = store._renewing
    assert task is not None
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
