"""One rebuild of an index: its chunks are embedded anew beside it, and then take its place in one step.

The two collections are compared by the generations of their documents, and what differs is copied with new vectors,
round after round: whatever is written or removed meanwhile differs again. When little is left, commits wait, for as
long as it takes to copy that; then the new collection is published in the place of the old. So nothing needs to be
remembered of what was written, and a rebuild that was interrupted is simply begun again.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

import structlog
from embedding.port import Embedder
from servicekit.errors import Unavailable

from retriever.indexes.lifecycle import Indexes
from retriever.indexes.open_index import Index
from retriever.languages.document_words import SAMPLE_CHUNKS, DocumentWords
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
    indexes: Indexes,
    index: Index,
    target: Collection,
    embedder: Embedder,
    words: DocumentWords,
    note: Callable[[], bytes],
    done: Done,
) -> None:
    """Fills a collection, and lets it take the place of an index's own.

    Args:
        indexes: Of which ``index`` is one.
        index: The index.
        target: Empty, made for this (`Indexes.begin_beside`).
        embedder: Makes its vectors, of passages.
        words: Makes what text search compares of them.
        note: What to keep with the new collection, made when it takes over.
        done: Told of the progress.

    Raises:
        Replaced, NotFound, Conflict: The index is another one by now, or gone.
        Unavailable: Commits do not come to rest; or what a store or a model raises.
    """
    source, log = index.collection, _log.bind(index=index.spec.name)
    copy = _Copy(source, target, embedder, words, done)
    for _ in range(_MOST_ROUNDS):
        left = await _differences(source, target)
        if len(left) <= _FEW:
            break
        log.debug("rebuilding an index", stage="copying")
        await copy.run(left)
    log.debug("rebuilding an index", stage="pausing")
    try:
        async with index.lock.exclusive(_PAUSE_SECONDS):
            await source.freeze(_PAUSE_SECONDS)
            try:
                left = await _differences(source, target)
                await copy.run(left)
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


class _Copy:
    """Makes documents in one collection as they are in another, with vectors and words of their own."""

    def __init__(
        self, source: Collection, target: Collection, embedder: Embedder, words: DocumentWords, done: Done
    ) -> None:
        self._source = source
        self._target = target
        self._embedder = embedder
        self._words = words
        self._done = done
        self._languages: Counter[str] = Counter()

    async def run(self, document_ids: list[str]) -> None:
        """Copies documents, one after the other."""
        total = len(await self._source.versions())
        for place, document_id in enumerate(document_ids):
            await self._document(document_id)
            await self._done(max(0, total - len(document_ids) + place + 1), total)

    async def _document(self, document_id: str) -> None:
        """Makes a document as it is there, or leaves it for the next round."""
        source, target = self._source, self._target
        record = (await source.records([document_id])).get(document_id)
        if record is None:
            await target.remove_record(document_id)
            await target.remove_chunks(document_id, keep=None)
            return
        first = await source.chunks_of(record.version, 0, SAMPLE_CHUNKS)
        texts = [chunk.text for chunk in first]
        language = await self._words.language(target.spec, record, texts, self._languages)
        copied = replace(record, text_language=language)
        count = 0
        async for points in source.points_of(record.version):
            for start in range(0, len(points), _TEXTS):
                await target.add_chunks(copied, await self._anew(points[start : start + _TEXTS], language))
            count += len(points)
        if count == record.chunk_count:  # else another version has come meanwhile
            await target.put_record(copied)
            await target.remove_chunks(document_id, keep=record.generation)
            self._languages[language] += 1

    async def _anew(self, points: list[ChunkPoint], language: str) -> list[ChunkPoint]:
        texts = [point.chunk.indexed_text for point in points]
        vectors, terms = await self._embedder.embed(texts), await self._words.terms(texts, language)
        return [
            replace(point, chunk=replace(point.chunk, vector=vector.tolist()), terms=each)
            for point, vector, each in zip(points, vectors, terms, strict=True)
        ]
