"""Checks and waits that several tests of the retriever use."""

import asyncio

from retriever.domain.scope import EVERYTHING
from retriever.indexes.rebuild_jobs import Rebuild, Rebuilds, RebuildState
from servicekit.principal import LOCAL

from causeway_testing.retriever.bench import INDEX, Bench
from causeway_testing.retriever.qdrant import Server


async def assert_nothing_left(bench: Bench) -> None:
    """Assert that no index has a mark, or a chunk that the catalogue does not know."""
    for index in await bench.indexes.of_tenant(LOCAL.tenant):
        assert await index.collection.marked() == []
        records = await index.collection.records(await index.collection.document_ids(EVERYTHING))
        known = sum(record.chunk_count for record in records.values())
        assert await index.collection.count_chunks(EVERYTHING) == known


async def wait_until_ended(rebuilds: Rebuilds) -> Rebuild:
    """Wait until the last rebuild of the index has ended, and return it."""
    async with asyncio.timeout(60):
        while True:
            found = await rebuilds.last(LOCAL, INDEX)
            if found.state is not RebuildState.RUNNING:
                return found
            await asyncio.sleep(0.01)


async def points_left(server: Server) -> int:
    """Return the number of points in all collections of a stand-in for a Qdrant server."""
    names = [each.name for each in (await server.client.get_collections()).collections]
    return sum([(await server.client.count(name)).count for name in names])
