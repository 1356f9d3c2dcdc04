"""Moving an index to the store's layout for new indexes, with its existing vectors.

A move is a rebuild (`rebuild`) without embedding. The index remains available for reads and writes. If the process
dies, the unfinished copy is removed, and a new move starts from the beginning.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial

import structlog
from servicekit.errors import CausewayError

from retriever.domain.document import Document
from retriever.indexes import rebuild
from retriever.indexes.lifecycle import Indexes
from retriever.indexes.open_index import Index
from retriever.ports.store import REBUILD, ChunkPoint, Collection

_log = structlog.get_logger(__name__)


class _Unchanged:
    """Copies documents and chunks unchanged."""

    async def record(self, record: Document) -> Document:
        """Return the record unchanged."""
        return record

    async def points(self, points: list[ChunkPoint], _record: Document, /) -> AsyncIterator[list[ChunkPoint]]:
        """Yield the chunks unchanged."""
        yield points

    def finished(self, record: Document) -> None:
        """Do nothing."""


async def move(indexes: Indexes, index: Index) -> int:
    """Move an index to the store's layout for new indexes. Return the number of its documents.

    Raises:
        Unavailable: Another process rebuilds or moves the index, or the store is unavailable.
        Conflict, NotFound: The index was replaced or deleted meanwhile.
    """
    source = index.collection
    await source.mark(REBUILD)
    moved = 0

    async def progress(documents: int, total: int) -> None:
        nonlocal moved
        moved = total
        _log.debug("moving an index", index=index.spec.name, documents=documents, of=total)

    try:
        target = await indexes.create_replacement(source.spec)
        try:
            await rebuild.run(indexes, index, target, _Unchanged(), partial(_finish, source, target), progress)
        except BaseException:
            await asyncio.shield(indexes.discard(target))
            raise
    except BaseException:
        with contextlib.suppress(CausewayError):
            await asyncio.shield(source.unmark(REBUILD))
        raise
    return moved


async def _finish(source: Collection, target: Collection) -> None:
    """Copy the current settings and note to the new collection."""
    await source.is_current()
    if source.spec.settings != target.spec.settings:
        await target.put_settings(source.spec.settings)
    await target.put_note(await source.note())
