"""One rebuild of an index: its chunks are made anew beside it, and then take its place in one step.

`Making` says what the new chunks are: with other vectors, or the same ones in another place. The two collections
are compared by the generations of their documents, and what differs is copied, round after round: what is
written or removed meanwhile differs again. When little is left, commits wait, for as long as it takes to copy that;
then the new collection is published in the place of the old. So nothing needs to be remembered of what was written,
and a rebuild that was interrupted is simply begun again.
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
    making: "Making",
    finish: Callable[[], Awaitable[None]],
    done: Done,
) -> None:
    """Fills a collection, and lets it take the place of an index's own.

    Args:
        indexes: Of which ``index`` is one.
        index: The index.
        target: Empty, made for this (`Indexes.begin_beside`).
        making: Makes its documents.
        finish: Called when it is about to take over.
        done: Told of the progress.

    Raises:
        Replaced, NotFound, Conflict: The index is another one by now, or gone.
        Unavailable: Commits do not come to rest; or what a store or a model raises.
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
        raise Unavailable(f"Index '{index.spec.name}' was written to without end.") from error


async def _differences(source: Collection, target: Collection) -> list[str]:
    wanted, there = await source.versions(), await target.versions()
    return [each for each in {**wanted, **there} if wanted.get(each) != there.get(each)]


class Making(Protocol):
    """Makes documents of one collection those of another."""

    async def record(self, record: Document) -> Document:
        """Return the record that a document gets."""
        ...

    def points(self, points: list[ChunkPoint], record: Document, /) -> AsyncIterator[list[ChunkPoint]]:
        """Yield the passages that a document gets for some of its own, a few at a time."""
        ...

    def made(self, record: Document) -> None:
        """Told when a document is there."""
        ...


class Anew:
    """Other vectors and other words.

    Args:
        source: Where the documents are.
        target: Where they are made.
        embedder: Makes the vectors, of passages.
        words: Makes what text search compares of them.
    """

    def __init__(self, source: Collection, target: Collection, embedder: Embedder, words: DocumentWords) -> None:
        self._source = source
        self._target = target
        self._embedder = embedder
        self._words = words
        self._languages: Counter[str] = Counter()

    async def record(self, record: Document) -> Document:
        """Return the record, with the language that the texts have."""
        first = await self._source.chunks_of(record.version, 0, SAMPLE_CHUNKS)
        texts = [chunk.text for chunk in first]
        language = await self._words.language(self._target.spec, record, texts, self._languages)
        return replace(record, text_language=language)

    async def points(self, points: list[ChunkPoint], record: Document, /) -> AsyncIterator[list[ChunkPoint]]:
        """Yield the passages with other vectors and words."""
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
        """Count the language of a document that is there."""
        self._languages[record.text_language] += 1


class _Copy:
    """Makes documents in one collection of those that are in another."""

    def __init__(self, source: Collection, target: Collection, making: Making, done: Done) -> None:
        self._source = source
        self._target = target
        self._making = making
        self._done = done

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
        copied = await self._making.record(record)
        count = 0
        async for points in source.points_of(record.version):
            async for made in self._making.points(points, copied):
                await target.add_chunks(copied, made)
            count += len(points)
        if count == record.chunk_count:  # else another version has come meanwhile
            await target.put_record(copied)
            await target.remove_chunks(document_id, keep=record.generation)
            self._making.made(copied)
