"""``python -m retriever.move_indexes``: moves indexes on a Qdrant server to the layout that the settings choose.

It runs beside the retrievers and moves one index at a time. It skips indexes that are already in place, so an
interrupted run can be repeated.
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
        Unavailable: Some indexes could not be moved. The others were.
    """
    indexes = await Indexes.open(store)
    try:
        found = await store.elsewhere()
        left = 0
        for tenant, name in found:
            log = _log.bind(tenant=tenant, index=name)
            try:
                documents = await move(indexes, await indexes.get(tenant, name))
                log.info("index moved", documents=documents)
            except NotFound:
                log.info("the index was deleted during the move")
            except CausewayError as error:
                log.warning("index not moved; it is unchanged", why=error.message)
                left += 1
        if left:
            raise Unavailable(f"{left} of {len(found)} indexes were not moved. Run this again.")
        _log.info("all indexes are in place", moved=len(found))
    finally:
        await indexes.aclose()


async def _run(settings: RetrieverSettings, stop: asyncio.Event) -> None:
    kind = registry.chosen(settings)
    if kind is not QDRANT:
        raise InvalidRequest("CAUSEWAY_QDRANT_URL is not set: only indexes on a Qdrant server can be moved.")
    store = await kind.open(settings, Scheduler())
    assert isinstance(store, QdrantStore)
    try:
        moving, stopping = asyncio.create_task(move_all(store)), asyncio.create_task(stop.wait())
        await asyncio.wait((moving, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        moving.cancel()  # does nothing if it has ended
        try:
            await moving
        except asyncio.CancelledError:
            _log.info("stopped; run this again to continue")
    finally:
        await store.aclose()


def main() -> int:
    """Move the indexes; return the exit code."""
    return process.run("retriever", Settings, _run, own_metrics=True)


if __name__ == "__main__":
    sys.exit(main())
