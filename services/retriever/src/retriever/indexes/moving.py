"""Moving an index to another place of the store, as the store makes new ones, with the vectors that it has.

It is a rebuild that embeds nothing (`rebuild`): the index answers and is written to meanwhile, and what was begun
is cleared away where the process dies. Moving it again begins anew.
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


class _AsTheyAre:
    """The same documents and passages."""

    async def record(self, record: Document) -> Document:
        """Return the record itself."""
        return record

    async def points(self, points: list[ChunkPoint], _record: Document, /) -> AsyncIterator[list[ChunkPoint]]:
        """Yield the passages themselves."""
        yield points

    def made(self, record: Document) -> None:
        """Count nothing."""


async def move(indexes: Indexes, index: Index) -> int:
    """Move an index to where the store makes new ones. Return the number of its documents.

    Raises:
        Unavailable: It is being rebuilt or moved by another process, or the store does not answer.
        Conflict, NotFound: It was replaced or deleted meanwhile.
    """
    source = index.collection
    await source.mark(REBUILD)
    moved = 0

    async def done(documents: int, total: int) -> None:
        nonlocal moved
        moved = total
        _log.debug("moving an index", index=index.spec.name, documents=documents, of=total)

    try:
        target = await indexes.begin_beside(source.spec)
        try:
            await rebuild.run(indexes, index, target, _AsTheyAre(), partial(_finish, source, target), done)
        except BaseException:
            await asyncio.shield(indexes.discard(target))
            raise
    except BaseException:
        with contextlib.suppress(CausewayError):
            await asyncio.shield(source.unmark(REBUILD))
        raise
    return moved


async def _finish(source: Collection, target: Collection) -> None:
    """Give the new collection the settings and the note that the old one has by now."""
    await source.is_current()
    if source.spec.settings != target.spec.settings:
        await target.put_settings(source.spec.settings)
    await target.put_note(await source.note())
