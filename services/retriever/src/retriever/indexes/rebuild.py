"""One rebuild of an index: its chunks are embedded anew beside it, and then take its place in one step.

The two collections are compared by the generations of their documents, and what differs is copied with new vectors,
round after round: whatever is written or removed meanwhile differs again. When little is left, commits wait, for as
long as it takes to copy that; then the new collection is published in the place of the old. So nothing needs to be
remembered of what was written, and a rebuild that was interrupted is simply begun again.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog
from embedding.port import Embedder
from servicekit.errors import Unavailable

from retriever.indexes.lifecycle import Indexes
from retriever.indexes.open_index import Index
from retriever.ports.store import ChunkPoint, Collection

_log = structlog.get_logger(__name__)

_TEXTS = 4
"""Embedded at a time: queries wait for no more than that."""
_FEW = 4
"""Documents that commits may wait for."""
_MOST_ROUNDS = 50
_PAUSE_SECONDS = 30.0

Done = Callable[[int, int], Awaitable[None]]
"""Told how many documents have their new vectors, and of how many."""


async def run(
    indexes: Indexes, index: Index, target: Collection, embedder: Embedder, note: Callable[[], bytes], done: Done
) -> None:
    """Fills a collection, and lets it take the place of an index's own.

    Args:
        indexes: Of which ``index`` is one.
        index: The index.
        target: Empty, made for this (`Indexes.begin_beside`).
        embedder: Makes its vectors, of passages.
        note: What to keep with the new collection, made when it takes over.
        done: Told of the progress.

    Raises:
        Replaced, NotFound, Conflict: The index is another one by now, or gone.
        Unavailable: Commits do not come to rest; or what a store or a model raises.
    """
    source, log = index.collection, _log.bind(index=index.spec.name)
    for _ in range(_MOST_ROUNDS):
        left = await _differences(source, target)
        if len(left) <= _FEW:
            break
        log.debug("rebuilding an index", stage="copying")
        await _copy(source, target, left, embedder, done)
    log.debug("rebuilding an index", stage="pausing")
    try:
        async with index.lock.exclusive(_PAUSE_SECONDS):
            await source.freeze(_PAUSE_SECONDS)
            try:
                left = await _differences(source, target)
                await _copy(source, target, left, embedder, done)
                if await _differences(source, target):
                    raise Unavailable(f"Index '{index.spec.name}' was written to while it was rebuilt.")
                await target.put_note(note())
                await target.sync()
                log.debug("rebuilding an index", stage="replacing")
                await indexes.replace(index, target)
                log.debug("rebuilding an index", stage="replaced")
            finally:
                await source.thaw()
    except TimeoutError as error:
        raise Unavailable(f"Index '{index.spec.name}' was written to without end.") from error


async def _differences(source: Collection, target: Collection) -> list[str]:
    wanted, there = await source.versions(), await target.versions()
    return [each for each in {**wanted, **there} if wanted.get(each) != there.get(each)]


async def _copy(
    source: Collection, target: Collection, document_ids: list[str], embedder: Embedder, done: Done
) -> None:
    total = len(await source.versions())
    for place, document_id in enumerate(document_ids):
        await _copy_document(source, target, document_id, embedder)
        await done(max(0, total - len(document_ids) + place + 1), total)


async def _copy_document(source: Collection, target: Collection, document_id: str, embedder: Embedder) -> None:
    """Makes a document in the one collection as it is in the other, or leaves it for the next round."""
    record = (await source.records([document_id])).get(document_id)
    if record is None:
        await target.remove_record(document_id)
        await target.remove_chunks(document_id, keep=None)
        return
    count = 0
    async for points in source.points_of(record.version):
        for start in range(0, len(points), _TEXTS):
            await target.add_chunks(record, await _embedded(points[start : start + _TEXTS], embedder))
        count += len(points)
    if count == record.chunk_count:  # else another version has come meanwhile
        await target.put_record(record)
        await target.remove_chunks(document_id, keep=record.generation)


async def _embedded(points: list[ChunkPoint], embedder: Embedder) -> list[ChunkPoint]:
    vectors = await embedder.embed([point.chunk.indexed_text for point in points])
    return [
        replace(point, chunk=replace(point.chunk, vector=vector.tolist()))
        for point, vector in zip(points, vectors, strict=True)
    ]
