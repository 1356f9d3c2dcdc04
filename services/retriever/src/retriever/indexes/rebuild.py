"""Rebuilds an index: fills a new collection and then replaces the old one atomically.

A `Conversion` creates the new chunks. It computes new vectors or, for a move to another layout (`moving`), copies
the chunks unchanged. Each round compares the generations of the documents in both collections and copies the
documents that differ, including documents that were written or removed meanwhile. When few differences are left, or
after `_MAX_ROUNDS`, commits wait until the remaining differences are copied. Then the new collection is published
in place of the old one. So the rebuild needs no log of writes. An interrupted rebuild starts from the beginning.
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
from retriever.languages.document_analyzer import SAMPLE_CHUNKS, DocumentAnalyzer
from retriever.ports.store import ChunkPoint, Collection

_log = structlog.get_logger(__name__)

_BATCH_TEXTS = 4
"""Number of texts to embed at a time, so that queries do not wait long."""
_MAX_PAUSED_DOCUMENTS = 4
"""With more differing documents, another round runs before commits wait, unless `_MAX_ROUNDS` have run."""
_MAX_ROUNDS = 50
_PAUSE_SECONDS = 30.0

Progress = Callable[[int, int], Awaitable[None]]
"""Receives the number of finished documents and the total."""


async def run(
    indexes: Indexes,
    index: Index,
    target: Collection,
    conversion: "Conversion",
    finish: Callable[[], Awaitable[None]],
    progress: Progress,
) -> None:
    """Fill a collection and replace the collection of an index by the filled one.

    Args:
        indexes: All indexes.
        index: The index.
        target: An empty collection from `Indexes.create_replacement`.
        conversion: Creates the documents of the target from those of the index.
        finish: Called just before the replacement, while commits wait.
        progress: Receives the progress.

    Raises:
        Replaced, NotFound, Conflict: The index was replaced or deleted meanwhile.
        Unavailable: Commits did not pause in time, or the index changed although they paused, or a store or a model
            failed.
    """
    source, log = index.collection, _log.bind(index=index.spec.name)
    copy = _Copy(source, target, conversion, progress)
    for _ in range(_MAX_ROUNDS):
        differing = await _differences(source, target)
        if len(differing) <= _MAX_PAUSED_DOCUMENTS:
            break
        log.debug("rebuilding an index", stage="copying")
        await copy.run(differing)
    log.debug("rebuilding an index", stage="pausing")
    try:
        async with index.lock.exclusive(_PAUSE_SECONDS):
            await source.freeze(_PAUSE_SECONDS)
            try:
                differing = await _differences(source, target)
                await copy.run(differing)
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
    old, new = await source.versions(), await target.versions()
    return [id_ for id_ in {**old, **new} if old.get(id_) != new.get(id_)]


class Conversion(Protocol):
    """Creates the documents of one collection from those of another."""

    async def record(self, record: Document) -> Document:
        """Return the new record of a document."""
        ...

    def points(self, points: list[ChunkPoint], record: Document, /) -> AsyncIterator[list[ChunkPoint]]:
        """Yield the new chunks for some chunks of a document, a few at a time."""
        ...

    def finished(self, record: Document) -> None:
        """Note that a document was copied."""
        ...


class Reembedding:
    """Computes new vectors and terms.

    Args:
        source: The collection to read.
        target: The collection to fill.
        embedder: Computes the vectors.
        analyzer: Chooses the language and computes the terms.
    """

    def __init__(
        self, source: Collection, target: Collection, embedder: Embedder, analyzer: DocumentAnalyzer
    ) -> None:
        self._source = source
        self._target = target
        self._embedder = embedder
        self._analyzer = analyzer
        self._languages: Counter[str] = Counter()

    async def record(self, record: Document) -> Document:
        """Return the record with the language of its texts."""
        first = await self._source.chunks_of(record.version, 0, SAMPLE_CHUNKS)
        texts = [chunk.text for chunk in first]
        language = await self._analyzer.language(self._target.spec, record, texts, self._languages)
        return replace(record, text_language=language)

    async def points(self, points: list[ChunkPoint], record: Document, /) -> AsyncIterator[list[ChunkPoint]]:
        """Yield the chunks with new vectors and terms."""
        for start in range(0, len(points), _BATCH_TEXTS):
            batch = points[start : start + _BATCH_TEXTS]
            texts = [point.chunk.indexed_text for point in batch]
            vectors = await self._embedder.embed(texts)
            terms = await self._analyzer.terms(texts, record.text_language)
            yield [
                replace(point, chunk=replace(point.chunk, vector=vector.tolist()), terms=chunk_terms)
                for point, vector, chunk_terms in zip(batch, vectors, terms, strict=True)
            ]

    def finished(self, record: Document) -> None:
        """Count the language of a finished document."""
        self._languages[record.text_language] += 1


class _Copy:
    """Copies documents from one collection to another."""

    def __init__(self, source: Collection, target: Collection, conversion: Conversion, progress: Progress) -> None:
        self._source = source
        self._target = target
        self._conversion = conversion
        self._progress = progress

    async def run(self, document_ids: list[str]) -> None:
        """Copy documents one after the other."""
        total = len(await self._source.versions())
        for position, document_id in enumerate(document_ids):
            await self._document(document_id)
            await self._progress(max(0, total - len(document_ids) + position + 1), total)

    async def _document(self, document_id: str) -> None:
        """Copy a document. If it changes meanwhile, the next round copies it."""
        source, target = self._source, self._target
        record = (await source.records([document_id])).get(document_id)
        if record is None:
            await target.remove_record(document_id)
            await target.remove_chunks(document_id, keep=None)
            return
        copied = await self._conversion.record(record)
        count = 0
        async for points in source.points_of(record.version):
            async for converted in self._conversion.points(points, copied):
                await target.add_chunks(copied, converted)
            count += len(points)
        if count == record.chunk_count:  # otherwise another version was stored meanwhile
            await target.put_record(copied)
            await target.remove_chunks(document_id, keep=record.generation)
            self._conversion.finished(copied)
