"""Storing one generation of a document: begin, chunks, commit.

1. *Begin*: the document is marked, its new version hidden. From here until the end the document is locked.
2. *Chunks* are stored as they come, under ids that depend on what they are alone, and nobody sees them.
3. *Commit*: the catalogue's record is replaced, which decides for good, and in the same turn of the loop the new
   version is shown and the old one hidden. Then the log goes to the disk; what is answered after it is never lost.
4. *Settle*, in every case: the chunks that the record does not name are removed, and the mark with them.

A process that dies between two of these leaves the mark, and the next start settles (`retriever.indexes`): up to
the record's replacement the old version is whole, from it on the new one.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import structlog
from servicekit import keys
from servicekit.errors import (
    DeadlineExceeded,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    RateLimited,
    StaleGeneration,
)

from retriever.access import may_see
from retriever.domain import Begin, Chunk, Commit, Document, IndexSpec, Outcome, Upserted, UpsertStep
from retriever.fields import check_document
from retriever.indexes import Index, Indexes
from retriever.store.port import ChunkPoint, TermEncoder

_log = structlog.get_logger(__name__)

MAX_CHUNKS_A_MESSAGE = 64
MAX_DIMENSION = 65_536
_UNIT_TOLERANCE = 0.01


class Upserts:
    """Takes documents in.

    Args:
        indexes: Where they go.
        encoder: Makes the sparse vectors.
        concurrent: Upserts that run at a time, each with one message in memory.
        waiting: Upserts that may wait for one of these to end; more are refused.
        idle_seconds: How long to wait for the next message of a stream.
    """

    def __init__(
        self, indexes: Indexes, encoder: TermEncoder, *, concurrent: int, waiting: int, idle_seconds: float
    ) -> None:
        self._indexes = indexes
        self._encoder = encoder
        self._slots = asyncio.Semaphore(concurrent)
        self._queue_left = waiting
        self._idle_seconds = idle_seconds

    async def upsert(self, steps: AsyncIterator[UpsertStep]) -> Upserted:
        """Stores what the steps bring, wholly or not at all.

        Raises:
            InvalidRequest: Naming the field; nothing changed.
            StaleGeneration: A newer generation is there.
            PermissionDenied: The document is there, and the caller may not see it.
            RateLimited: Too many upserts wait already.
            DeadlineExceeded: The next message did not come.
        """
        begin = await self._next(steps)
        if not isinstance(begin, Begin):
            raise InvalidRequest("The first message must be 'begin'.", field="begin")
        spec = _check(begin)
        await self._take_slot()
        try:
            async with self._indexes.writing(spec) as index, index.lock(begin.document.document_id):
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

    async def _write(self, index: Index, begin: Begin, steps: AsyncIterator[UpsertStep]) -> Upserted:
        document = begin.document
        stored = (await index.collection.records([document.document_id])).get(document.document_id)
        if stored is not None and _is_settled_by(stored, begin):
            return Upserted(Outcome.UNCHANGED, stored)
        finish = self._indexes.finisher.finish
        try:
            count = await self._stage(index, begin, steps)
            made = replace(document, chunk_count=count, updated_at=datetime.now(UTC))
            await finish(self._commit(index, stored, made))
        except BaseException:
            await finish(self._undo(index, document.document_id))
            raise
        return Upserted(Outcome.REPLACED if stored else Outcome.CREATED, made)

    async def _stage(self, index: Index, begin: Begin, steps: AsyncIterator[UpsertStep]) -> int:
        index.hide(begin.document.version)
        await index.collection.mark(begin.document.document_id)
        count = 0
        while True:
            match await self._next(steps):
                case Commit(chunk_count):
                    if chunk_count != count:
                        raise InvalidRequest(
                            f"The commit speaks of {chunk_count} chunks, {count} came.", field="commit.chunk_count"
                        )
                    return count
                case Begin():
                    raise InvalidRequest("The upsert has begun already.", field="begin")
                case None:
                    raise InvalidRequest("The stream ended without a commit.", field="commit")
                case chunks:
                    _check_chunks(chunks, count, begin.dimension)
                    await self._store(index, begin.document, chunks)
                    count += len(chunks)

    async def _store(self, index: Index, document: Document, chunks: Sequence[Chunk]) -> None:
        spec = index.spec
        collection = keys.collection(spec.tenant, spec.name)
        terms = await self._encoder.documents([chunk.indexed_text for chunk in chunks])
        points = [
            ChunkPoint(_chunk_id(collection, document, chunk), chunk, each)
            for chunk, each in zip(chunks, terms, strict=True)
        ]
        await index.collection.add_chunks(document, points)

    async def _commit(self, index: Index, stored: Document | None, made: Document) -> None:
        await index.collection.put_record(made)
        await self._indexes.publish(index)
        index.replace(stored.version if stored else None, made.version)
        await index.collection.sync()
        await index.settle(made.document_id)

    async def _undo(self, index: Index, document_id: str) -> None:
        try:
            await index.settle(document_id)
        except NotFound:
            return  # the index was deleted, with all that came in
        except Exception:
            # The version stays hidden, and the mark lets the next start settle it.
            _log.exception("an upsert that failed could not be cleared away", document=document_id)

    async def _next(self, steps: AsyncIterator[UpsertStep]) -> UpsertStep | None:
        try:
            async with asyncio.timeout(self._idle_seconds):
                return await anext(steps, None)
        except TimeoutError as error:
            raise DeadlineExceeded(f"No message came for {self._idle_seconds:g} s.") from error


def _check(begin: Begin) -> IndexSpec:
    check_document(begin.document)
    if not begin.embedding_model:
        raise InvalidRequest("The model that made the vectors is not named.", field="embedding_model")
    if not 1 <= begin.dimension <= MAX_DIMENSION:
        raise InvalidRequest(f"Vectors have 1 to {MAX_DIMENSION} numbers.", field="dimension")
    return IndexSpec(begin.principal.tenant, begin.index, begin.embedding_model, begin.dimension)


def _is_settled_by(stored: Document, begin: Begin) -> bool:
    """Whether what comes is what is there already: a message that was delivered again."""
    sent = begin.document
    same = stored.generation == sent.generation
    # Who sends the same again need not be able to see it: a worker stores on behalf of others.
    if not may_see(begin.principal, stored.access) and not (same and stored.sha256 == sent.sha256):
        raise PermissionDenied(
            f"Document '{sent.document_id}' is there, and not open to you.", resource=sent.document_id
        )
    if stored.generation > sent.generation:
        raise StaleGeneration(
            f"Generation {stored.generation} of document '{sent.document_id}' is there; "
            f"{sent.generation} is older.",
            resource=sent.document_id,
            details={"stored_generation": str(stored.generation)},
        )
    return same


def _check_chunks(chunks: Sequence[Chunk], expected: int, dimension: int) -> None:
    if len(chunks) > MAX_CHUNKS_A_MESSAGE:
        raise InvalidRequest(f"A message has at most {MAX_CHUNKS_A_MESSAGE} chunks.", field="chunks")
    for place, chunk in enumerate(chunks):
        field = f"chunks[{place}]"
        if chunk.number != expected + place:
            raise InvalidRequest(
                f"Chunk {chunk.number} came where {expected + place} was due.", field=f"{field}.number"
            )
        if not chunk.text.strip():
            raise InvalidRequest("The text is blank.", field=f"{field}.text")
        if not chunk.indexed_text.strip():
            raise InvalidRequest("The text to index is blank.", field=f"{field}.indexed_text")
        if len(chunk.vector) != dimension:
            raise InvalidRequest(
                f"The vector has {len(chunk.vector)} numbers instead of {dimension}.", field=f"{field}.vector"
            )
        # A length near 1 also rules out what is not a number, and infinity.
        if not abs(math.hypot(*chunk.vector) - 1) <= _UNIT_TOLERANCE:
            raise InvalidRequest("The vector is not of length 1.", field=f"{field}.vector")


def _chunk_id(collection: str, document: Document, chunk: Chunk) -> str:
    return str(keys.point_id(collection, document.document_id, document.generation, chunk.number, chunk.text))
