"""``python -m retriever.move_indexes``: moves indexes on a Qdrant server to the layout that the settings choose.

The retrievers can run at the same time. The command moves one index at a time. It skips indexes that already have
the layout, so an interrupted run can be repeated.
"""

import asyncio
import sys

import structlog
from servicekit import process
from servicekit.errors import CausewayError, InvalidRequest, NotFound, Unavailable

from retriever.concurrency.scheduler import Scheduler
from retriever.indexes.lifecycle import Indexes
from retriever.indexes.moving import move
from retriever.settings import RetrieverSettings, Settings
from retriever.stores import registry
from retriever.stores.qdrant.kind import QDRANT
from retriever.stores.qdrant.store import QdrantStore

_log = structlog.get_logger(__name__)


async def move_all(store: QdrantStore) -> None:
    """Move the indexes that are not in the layout of the settings.

    Raises:
        Unavailable: Some indexes could not be moved. All other indexes were moved.
    """
    indexes = await Indexes.open(store)
    try:
        misplaced = await store.indexes_to_move()
        failed = 0
        for tenant, name in misplaced:
            log = _log.bind(tenant=tenant, index=name)
            try:
                documents = await move(indexes, await indexes.get(tenant, name))
                log.info("index moved", documents=documents)
            except NotFound:
                log.info("the index was deleted during the move")
            except CausewayError as error:
                log.warning("index not moved; it is unchanged", why=error.message)
                failed += 1
        if failed:
            raise Unavailable(f"{failed} of {len(misplaced)} indexes were not moved. Run this command again.")
        _log.info("all indexes are in place", moved=len(misplaced))
    finally:
        await indexes.aclose()


async def _run(settings: RetrieverSettings, stop: asyncio.Event) -> None:
    kind = registry.chosen(settings)
    if kind is not QDRANT:
        raise InvalidRequest("Set CAUSEWAY_QDRANT_URL: only indexes on a Qdrant server can be moved.")
    store = await kind.open(settings, Scheduler())
    assert isinstance(store, QdrantStore)
    try:
        moving, stopping = asyncio.create_task(move_all(store)), asyncio.create_task(stop.wait())
        await asyncio.wait((moving, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        moving.cancel()  # has no effect on a finished task
        try:
            await moving
        except asyncio.CancelledError:
            _log.info("stopped; run this command again to continue")
    finally:
        await store.aclose()


def main() -> int:
    """Move the indexes and return the exit code."""
    return process.run("retriever", Settings, _run, own_metrics=True)


if __name__ == "__main__":
    sys.exit(main())
