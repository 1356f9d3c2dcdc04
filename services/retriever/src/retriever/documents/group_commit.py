"""Group commit: stores small documents that are ready at the same time with one write to the disk.

While one group is written, ready documents form the next group. Each document is acknowledged when its group is
durable. If a group cannot be stored, its documents are stored one by one, like large documents
(`documents.versions`). So an error affects only the document that causes it. If the error occurs after the write,
readers already see the new versions, and keep seeing them while the documents are stored again.
"""

import asyncio
import weakref
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import structlog

from retriever.documents import versions
from retriever.domain.document import Document
from retriever.indexes.lifecycle import Indexes
from retriever.indexes.open_index import Index
from retriever.ports.whole_documents import WholeDocument, WholeDocuments

_log = structlog.get_logger(__name__)

MAX_GROUP_CHUNKS = 16
"""Maximum number of chunks of a document and of a group. The engine stores this number of chunks in about 3 ms."""
_GATHER_SECONDS = 0.001
"""Seconds that a group waits for documents that are still being received."""


@dataclass(slots=True, eq=False)
class _Entry:
    whole: WholeDocument
    done: bool = False
    error: Exception | None = None


class _Queue:
    """The waiting documents of one index."""

    def __init__(self) -> None:
        self.writing = asyncio.Lock()
        self.waiting: list[_Entry] = []

    def take(self) -> list[_Entry]:
        """Remove and return the next group: the first document, and following documents that fit."""
        count = chunks = 0
        for entry in self.waiting:
            chunks += len(entry.whole.points)
            if count and chunks > MAX_GROUP_CHUNKS:
                break
            count += 1
        group, self.waiting = self.waiting[:count], self.waiting[count:]
        return group


class GroupCommit:
    """Stores small documents in groups.

    Args:
        indexes: The indexes.
    """

    def __init__(self, indexes: Indexes) -> None:
        self._indexes = indexes
        self._queues: weakref.WeakKeyDictionary[Index, _Queue] = weakref.WeakKeyDictionary()

    def accepts(self, index: Index, chunks: int) -> bool:
        """Return whether a document with this number of chunks is stored in a group."""
        return chunks <= MAX_GROUP_CHUNKS and isinstance(index.collection, WholeDocuments)

    def waiting(self, index: Index) -> int:
        """Return the number of documents that wait for the next group."""
        queue = self._queues.get(index)
        return len(queue.waiting) if queue is not None else 0

    async def put(self, index: Index, whole: WholeDocument) -> Document:
        """Store a version and remove the previous one. The caller holds the document's lock (`Index.changing`).

        A cancellation takes effect after the document is stored.

        Returns:
            The record.
        """
        entry = _Entry(replace(whole, document=replace(whole.document, updated_at=datetime.now(UTC))))
        await self._indexes.shield.run(self._put(index, entry))
        return entry.whole.document

    async def _put(self, index: Index, entry: _Entry) -> None:
        queue = self._queues.setdefault(index, _Queue())
        queue.waiting.append(entry)
        async with queue.writing:
            if not entry.done:  # otherwise the task of another document has stored it, in the same group
                if len(queue.waiting) < index.writers:
                    await asyncio.sleep(_GATHER_SECONDS)
                await self._write(index, queue.take())
        if entry.error is not None:
            raise entry.error

    async def _write(self, index: Index, group: Sequence[_Entry]) -> None:
        collection = index.collection
        assert isinstance(collection, WholeDocuments)
        is_visible = False
        try:
            async with index.lock.shared():
                marked = await collection.put_documents([entry.whole for entry in group])
                is_visible = True
                await self._commit(index, group, marked)
        except Exception as error:
            _log.warning("documents are stored one by one", index=index.spec.name, error=repr(error))
            for entry in group:
                await self._write_alone(index, entry, restore=not is_visible)
        for entry in group:
            entry.done = True

    async def _commit(self, index: Index, group: Sequence[_Entry], marked: Collection[str]) -> None:
        for entry in group:
            index.note_language(entry.whole.document.text_language)
        await versions.make_durable(self._indexes, index)
        for document_id in marked:
            await index.settle(document_id)

    async def _write_alone(self, index: Index, entry: _Entry, *, restore: bool) -> None:
        """Store a document of a failed group.

        Args:
            index: The index.
            entry: The document.
            restore: Whether to restore the previous record first, because the write of the group failed. It may
                have written the new record without the chunks.
        """
        whole = entry.whole

        async def stage() -> Document:
            if restore and whole.previous is None:
                await index.collection.remove_record(whole.document.document_id)
            elif restore and whole.previous is not None:
                await index.collection.put_record(whole.previous)
            await index.collection.add_chunks(whole.document, whole.points)
            return whole.document

        try:
            await versions.put(self._indexes, index, whole.document, stage)
        except Exception as error:
            entry.error = error
