"""A rebuild of an index: fills a new collection and then replaces the old one atomically.

`Making` produces the new chunks: with new vectors, or unchanged for a move. Each round compares the generations of
the documents in both collections and copies the differences, including documents that were written or removed
meanwhile. When few differences are left, commits wait until these are copied. Then the new collection is published
in place of the old one. So the rebuild needs no log of writes, and an interrupted rebuild starts again.
"""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Protocol

import structlog
from embedding.port import Embedder
from servicekit.errors import Unavailable

from retriever.domain.document import Document
from retriever.indexes.lifecycle import Indexes
from retriever.indexes.open_index import Index
from retriever.languages.document_words import SAMPLE_CHUNKS, DocumentWords
from retriever.ports.store import ChunkPoint, Collection

_log = structlog.get_logger(__name__)

_TEXTS = 4
"""Texts that are embedded at a time, so that queries do not wait long."""
_FEW = 4
"""Maximum number of documents to copy while commits wait."""
_MOST_ROUNDS = 50
_PAUSE_SECONDS = 30.0

Done = Callable[[int, int], Awaitable[None]]
"""Receives the number of finished documents and the total."""


async def run(
    indexes: Indexes,
    index: Index,
    target: Collection,
    making: "Making",
    finish: Callable[[], Awaitable[None]],
    done: Done,
) -> None:
    """Fill a collection and replace an index's collection by it.

    Args:
        indexes: All indexes.
        index: The index.
        target: An empty collection from `Indexes.begin_beside`.
        making: Makes the documents of the target.
        finish: Called just before the replacement.
        done: Receives the progress.

    Raises:
        Replaced, NotFound, Conflict: The index was replaced or deleted meanwhile.
        Unavailable: Commits do not pause in time, or a store or a model failed.
    """
    source, log = index.collection, _log.bind(index=index.spec.name)
    copy = _Copy(source, target, making, done)
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
                await finish()
                await target.sync()
                log.debug("rebuilding an index", stage="replacing")
                await indexes.replace(index, target)
                log.debug("rebuilding an index", stage="replaced")
            finally:
                await source.thaw()
    except TimeoutError as error:
        raise Unavailable(f"Index '{index.spec.name}' has too many writes to be rebuilt now.") from error


async def _differences(source: Collection, target: Collection) -> list[str]:
    wanted, there = await source.versions(), await target.versions()
    return [each for each in {**wanted, **there} if wanted.get(each) != there.get(each)]


class Making(Protocol):
    """Makes the documents of one collection from those of another."""

    async def record(self, record: Document) -> Document:
        """Return the new record of a document."""
        ...

    def points(self, points: list[ChunkPoint], record: Document, /) -> AsyncIterator[list[ChunkPoint]]:
        """Yield the new chunks for some chunks of a document, a few at a time."""
        ...

    def made(self, record: Document) -> None:
        """Note that a document is complete."""
        ...


class Anew:
    """Makes new vectors and terms.

    Args:
        source: The collection to read.
        target: The collection to fill.
        embedder: Computes the vectors.
        words: Computes the terms.
    """

    def __init__(self, source: Collection, target: Collection, embedder: Embedder, words: DocumentWords) -> None:
        self._source = source
        self._target = target
        self._embedder = embedder
        self._words = words
        self._languages: Counter[str] = Counter()

    async def record(self, record: Document) -> Document:
        """Return the record with the language of its texts."""
        first = await self._source.chunks_of(record.version, 0, SAMPLE_CHUNKS)
        texts = [chunk.text for chunk in first]
        language = await self._words.language(self._target.spec, record, texts, self._languages)
        return replace(record, text_language=language)

    async def points(self, points: list[ChunkPoint], record: Document, /) -> AsyncIterator[list[ChunkPoint]]:
        """Yield the chunks with new vectors and terms."""
        for start in range(0, len(points), _TEXTS):
            some = points[start : start + _TEXTS]
            texts = [point.chunk.indexed_text for point in some]
            vectors = await self._embedder.embed(texts)
            terms = await self._words.terms(texts, record.text_language)
            yield [
                replace(point, chunk=replace(point.chunk, vector=vector.tolist()), terms=each)
                for point, vector, each in zip(some, vectors, terms, strict=True)
            ]

    def made(self, record: Document) -> None:
        """Count the language of a finished document."""
        self._languages[record.text_language] += 1


class _Copy:
    """Copies documents from one collection to another."""

    def __init__(self, source: Collection, target: Collection, making: Making, done: Done) -> None:
        self._source = source
        self._target = target
        self._making = making
        self._done = done

    async def run(self, document_ids: list[str]) -> None:
        """Copy documents one after the other."""
        total = len(await self._source.versions())
        for place, document_id in enumerate(document_ids):
            await self._document(document_id)
            await self._done(max(0, total - len(document_ids) + place + 1), total)

    async def _document(self, document_id: str) -> None:
        """Copy a document, or leave it for the next round if it changes meanwhile."""
        source, target = self._source, self._target
        record = (await source.records([document_id])).get(document_id)
        if record is None:
            await target.remove_record(document_id)
            await target.remove_chunks(document_id, keep=None)
            return
        copied = await self._making.record(record)
        count = 0
        async for points in source.points_of(record.version):
            async for made in self._making.points(points, copied):
                await target.add_chunks(copied, made)
            count += len(points)
        if count == record.chunk_count:  # otherwise another version was stored meanwhile
            await target.put_record(copied)
            await target.remove_chunks(document_id, keep=record.generation)
            self._making.made(copied)
