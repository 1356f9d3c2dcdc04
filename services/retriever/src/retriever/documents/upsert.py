"""Upserts of documents (begin, chunks, commit), and updates of the fields of stored documents.

`documents.versions` replaces one version by another and describes the effect of a crash.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from servicekit import keys
from servicekit.errors import DeadlineExceeded, InvalidRequest, NotFound, RateLimited
from servicekit.principal import Principal

from retriever.documents import versions
from retriever.documents.group_commit import GroupCommit
from retriever.domain.changes import Begin, Commit, Outcome, Updated, Upserted, UpsertStep
from retriever.domain.document import Chunk, Document
from retriever.domain.fields import check_document
from retriever.domain.index import IndexSpec
from retriever.domain.language import AUTO
from retriever.indexes.lifecycle import Indexes
from retriever.indexes.open_index import Index
from retriever.languages.document_analyzer import DocumentAnalyzer
from retriever.ports.store import ChunkPoint
from retriever.ports.whole_documents import WholeDocument

MAX_CHUNKS_PER_MESSAGE = 64
MAX_DIMENSION = 65_536
_UNIT_TOLERANCE = 0.01
_MAX_SEPARATOR_LENGTH = 10_000


class Upserts:
    """Stores documents.

    Args:
        indexes: The indexes.
        groups: Commits small documents together.
        analyzer: Chooses the language and computes the terms.
        max_concurrent: Maximum number of concurrent upserts and updates. Each upsert has two messages in memory.
        max_waiting: Maximum number of waiting upserts and updates; more are refused.
        idle_seconds: Maximum seconds to wait for the next message of a stream.
    """

    def __init__(
        self,
        indexes: Indexes,
        groups: GroupCommit,
        analyzer: DocumentAnalyzer,
        *,
        max_concurrent: int,
        max_waiting: int,
        idle_seconds: float = 60.0,
    ) -> None:
        self._indexes = indexes
        self._groups = groups
        self._analyzer = analyzer
        self._slots = asyncio.Semaphore(max_concurrent)
        self._queue_left = max_waiting
        self._idle_seconds = idle_seconds

    async def upsert(self, steps: AsyncIterator[UpsertStep]) -> Upserted:
        """Store the document of these steps atomically.

        Raises:
            InvalidRequest: A field is wrong; nothing changed.
            StaleGeneration: A newer generation is stored.
            PermissionDenied: The document exists, and the caller may not see it.
            RateLimited: Too many upserts and updates wait already.
            DeadlineExceeded: The next message did not arrive in time.
            Unavailable: The store has no space, or another process writes the document.
        """
        begin = await self._next(steps)
        if not isinstance(begin, Begin):
            raise InvalidRequest("The first message must be 'begin'.", field="begin")
        spec = _check(begin)
        await self._take_slot()
        try:
            async with self._indexes.writing(spec) as index, index.changing(begin.document.document_id):
                return await self._write(index, begin, steps)
        finally:
            self._slots.release()

    async def _take_slot(self) -> None:
        if self._slots.locked():
            if not self._queue_left:
                raise RateLimited("Too many documents are being written at once.", retry_after=1)
            self._queue_left -= 1
            try:
                await self._slots.acquire()
            finally:
                self._queue_left += 1
        else:
            await self._slots.acquire()

    async def update(self, principal: Principal, index_name: str, document: Document) -> Updated:
        """Store a higher generation of a document with other fields and the same chunks.

        Args:
            principal: The caller.
            index_name: The index of the document.
            document: The id and ``sha256`` of the document, and the fields to set: metadata, access, category,
                language, generation. ``sourcefile`` must be empty or unchanged, because chunks are indexed with it.

        Raises:
            InvalidRequest: A field is wrong; nothing changed.
            NotFound: The index or the document does not exist, or its ``sha256`` or ``sourcefile`` differs.
            StaleGeneration: A newer generation is stored.
            PermissionDenied: The document exists, and the caller may not see it.
            RateLimited: Too many upserts and updates wait already.
            Unavailable: The store has no space, or another process writes the document.
        """
        check_document(document)
        await self._take_slot()
        try:
            async with self._indexes.changing(principal.tenant, index_name, document.document_id) as index:
                return await self._update(index, principal, document)
        finally:
            self._slots.release()

    async def _update(self, index: Index, principal: Principal, document: Document) -> Updated:
        stored = (await index.collection.records([document.document_id])).get(document.document_id)
        if stored is None or not _is_same_content(stored, document):
            raise NotFound(
                f"Index '{index.spec.name}' has no document '{document.document_id}' of this content.",
                resource=document.document_id,
            )
        if versions.is_stored(stored, document, principal):
            await self._indexes.shield.run(versions.make_durable(self._indexes, index))
            return Updated(changed=False, document=stored)
        updated = replace(
            stored,
            metadata_json=document.metadata_json,
            access=document.access,
            category=document.category,
            language=document.language,
            generation=document.generation,
        )
        record = await versions.put(self._indexes, index, updated, lambda: _copy(index, stored, updated))
        return Updated(_updated_fields(stored) != _updated_fields(record), record)

    async def _write(self, index: Index, begin: Begin, steps: AsyncIterator[UpsertStep]) -> Upserted:
        document = begin.document
        stored = (await index.collection.records([document.document_id])).get(document.document_id)
        if stored is not None and versions.is_stored(stored, document, begin.principal):
            await self._indexes.shield.run(versions.make_durable(self._indexes, index))
            return Upserted(Outcome.UNCHANGED, stored)
        first_steps = [await self._next(steps)]
        if isinstance(first_steps[0], Sequence):
            first_steps.append(await self._next(steps))
        match first_steps:
            case [Sequence() as chunks, Commit() as commit] if self._groups.accepts(index, len(chunks)):
                _check_chunks(chunks, 0, begin.dimension)
                _check_count(commit, len(chunks))
                record = await self._groups.put(index, await self._whole_document(index, document, chunks, stored))
            case _:
                all_steps = _chained(first_steps, steps)
                record = await versions.put(
                    self._indexes, index, document, lambda: self._stage(index, begin, all_steps)
                )
        return Upserted(Outcome.REPLACED if stored else Outcome.CREATED, record)

    async def _whole_document(
        self, index: Index, document: Document, chunks: Sequence[Chunk], previous: Document | None
    ) -> WholeDocument:
        document = await self._with_language(index, replace(document, chunk_count=len(chunks)), chunks)
        return WholeDocument(document, await self._points(index, document, chunks), previous)

    async def _stage(self, index: Index, begin: Begin, steps: AsyncIterator[UpsertStep]) -> Document:
        document, count = begin.document, 0
        while True:
            match await self._next(steps):
                case Commit() as commit:
                    _check_count(commit, count)
                    return replace(document, chunk_count=count)
                case Begin():
                    raise InvalidRequest("Only the first message may be 'begin'.", field="begin")
                case None:
                    raise InvalidRequest("The stream ended without a commit.", field="commit")
                case chunks:
                    _check_chunks(chunks, count, begin.dimension)
                    if not count:
                        document = await self._with_language(index, document, chunks)
                    await index.collection.add_chunks(document, await self._points(index, document, chunks))
                    count += len(chunks)

    async def _with_language(self, index: Index, document: Document, chunks: Sequence[Chunk]) -> Document:
        texts = [chunk.text for chunk in chunks]
        counts = await index.languages() if index.spec.language == AUTO else {}
        language = await self._analyzer.language(index.spec, document, texts, counts)
        return replace(document, text_language=language)

    async def _points(self, index: Index, document: Document, chunks: Sequence[Chunk]) -> list[ChunkPoint]:
        terms = await self._analyzer.terms([chunk.indexed_text for chunk in chunks], document.text_language)
        return [
            ChunkPoint(_chunk_id(index.spec, document, chunk), chunk, chunk_terms)
            for chunk, chunk_terms in zip(chunks, terms, strict=True)
        ]

    async def _next(self, steps: AsyncIterator[UpsertStep]) -> UpsertStep | None:
        try:
            async with asyncio.timeout(self._idle_seconds):
                return await anext(steps, None)
        except TimeoutError as error:
            raise DeadlineExceeded(f"No message arrived for {self._idle_seconds:g} s.") from error


def _check(begin: Begin) -> IndexSpec:
    check_document(begin.document)
    if not begin.embedding_model:
        raise InvalidRequest("The embedding model of the vectors is missing.", field="embedding_model")
    if not 1 <= begin.dimension <= MAX_DIMENSION:
        raise InvalidRequest(f"Vectors have 1 to {MAX_DIMENSION} numbers.", field="dimension")
    return IndexSpec(begin.principal.tenant, begin.index, begin.embedding_model, begin.dimension, language=AUTO)


def _check_count(commit: Commit, count: int) -> None:
    if commit.chunk_count != count:
        raise InvalidRequest(
            f"The commit names {commit.chunk_count} chunks, but {count} were sent.", field="commit.chunk_count"
        )


async def _chained(
    first_steps: Sequence[UpsertStep | None], steps: AsyncIterator[UpsertStep]
) -> AsyncIterator[UpsertStep]:
    for step in first_steps:
        if step is None:
            return
        yield step
    async for step in steps:
        yield step


def _check_chunks(chunks: Sequence[Chunk], first_number: int, dimension: int) -> None:
    if len(chunks) > MAX_CHUNKS_PER_MESSAGE:
        raise InvalidRequest(f"A message has at most {MAX_CHUNKS_PER_MESSAGE} chunks.", field="chunks")
    for position, chunk in enumerate(chunks):
        field = f"chunks[{position}]"
        if chunk.number != first_number + position:
            raise InvalidRequest(
                f"Chunk {chunk.number} was sent where {first_number + position} was expected.",
                field=f"{field}.number",
            )
        if not chunk.text.strip():
            raise InvalidRequest("The text is blank.", field=f"{field}.text")
        if not chunk.indexed_text.strip():
            raise InvalidRequest("The text to index is blank.", field=f"{field}.indexed_text")
        if chunk.overlap > len(chunk.text):
            raise InvalidRequest("The overlap is longer than the text.", field=f"{field}.overlap")
        if chunk.separator is not None and len(chunk.separator) > _MAX_SEPARATOR_LENGTH:
            raise InvalidRequest(
                f"A separator has at most {_MAX_SEPARATOR_LENGTH} characters.", field=f"{field}.separator"
            )
        if len(chunk.vector) != dimension:
            raise InvalidRequest(
                f"The vector has {len(chunk.vector)} numbers instead of {dimension}.", field=f"{field}.vector"
            )
        # A length near 1 also excludes NaN and infinity.
        if not abs(math.hypot(*chunk.vector) - 1) <= _UNIT_TOLERANCE:
            raise InvalidRequest("The vector does not have length 1.", field=f"{field}.vector")


async def _copy(index: Index, stored: Document, updated: Document) -> Document:
    """Store the chunks of the stored version as chunks of the updated version. Return the updated record."""
    count = 0
    async for points in index.collection.points_of(stored.version):
        copies = [replace(point, id=_chunk_id(index.spec, updated, point.chunk)) for point in points]
        await index.collection.add_chunks(updated, copies)
        count += len(points)
    return replace(updated, chunk_count=count)


def _is_same_content(stored: Document, sent: Document) -> bool:
    return stored.sha256 == sent.sha256 and sent.sourcefile in ("", stored.sourcefile)


def _updated_fields(document: Document) -> tuple[object, ...]:
    """Return the fields that an update sets, except the generation, with normalised metadata."""
    metadata = json.dumps(json.loads(document.metadata_json or b"{}"), sort_keys=True)
    access = frozenset(document.access.oids), frozenset(document.access.groups)
    return metadata, access, document.category, document.language


def _chunk_id(spec: IndexSpec, document: Document, chunk: Chunk) -> str:
    collection = keys.collection(spec.tenant, spec.name)
    return str(keys.point_id(collection, document.document_id, document.generation, chunk.number, chunk.text))
