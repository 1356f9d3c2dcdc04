"""Atomic replacement of one version of a document by another.

1. *Begin*: The document is marked. Until the last step the document is locked, and readers see the version that its
   record names.
2. *Stage*: Chunks are stored as they arrive. No reader sees them yet. The id of a chunk is derived from the index,
   the document, the generation, the number and the text, so a repeated upsert writes the same points.
3. *Commit*: The catalogue's record is replaced. Readers now see the new version and not the old one. Then the log
   is synced to the disk, so that an acknowledged document is never lost.
4. *Settle*, even after an error: The chunks that the record does not name are removed, then the mark.

If the process dies between two steps, the mark remains. The next start, or another process that shares the store,
settles the document (`retriever.indexes.lifecycle`). Before the record is replaced, the old version is complete;
afterwards the new one is. An embedded store stores small documents in one step instead (`documents.group_commit`).
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime

import structlog
from servicekit.errors import NotFound, PermissionDenied, StaleGeneration, Unavailable
from servicekit.principal import Principal

from retriever.domain.access import may_see
from retriever.domain.document import Document
from retriever.indexes.lifecycle import Indexes
from retriever.indexes.open_index import Index

_log = structlog.get_logger(__name__)


def is_stored(stored: Document, sent: Document, principal: Principal) -> bool:
    """Return whether the sent version is already stored. This happens if a message is delivered twice.

    The stored version may not be durable yet (`make_durable`).

    Raises:
        StaleGeneration: A newer generation is stored.
        PermissionDenied: The document exists, and the caller may not see it.
    """
    same = stored.generation == sent.generation
    # A repeated message needs no access to the document, because a worker stores documents for other users.
    if not may_see(principal, stored.access) and not (same and stored.sha256 == sent.sha256):
        raise PermissionDenied(
            f"Document '{sent.document_id}' exists, and you have no access to it.", resource=sent.document_id
        )
    if stored.generation > sent.generation:
        raise StaleGeneration(
            f"Generation {stored.generation} of document '{sent.document_id}' is stored; "
            f"{sent.generation} is older.",
            resource=sent.document_id,
            details={"stored_generation": str(stored.generation)},
        )
    return same


async def make_durable(indexes: Indexes, index: Index) -> None:
    """Publish the index, and sync its previous writes to the disk.

    A repeated message also needs this: the first attempt may have failed, or its process may have been killed,
    between the write of the record and the sync.
    """
    await indexes.publish(index)
    await index.collection.sync()


async def put(
    indexes: Indexes,
    index: Index,
    document: Document,
    stage: Callable[[], Awaitable[Document]],
) -> Document:
    """Store a version and remove the previous one. The caller holds the lock of the document.

    Args:
        indexes: All indexes.
        index: The index of the document.
        document: The new version.
        stage: Stores the chunks and returns the record.

    Returns:
        The record.
    """
    finish = indexes.shield.run
    await index.collection.mark(document.document_id)
    try:
        record = replace(await stage(), updated_at=datetime.now(UTC))
        async with index.lock.shared():
            await finish(_commit(indexes, index, record))
    except BaseException:
        await finish(_undo(index, document.document_id))
        raise
    return record


async def _commit(indexes: Indexes, index: Index, record: Document) -> None:
    await index.collection.put_record(record)
    index.note_language(record.text_language)
    await make_durable(indexes, index)
    await index.settle(record.document_id)


async def _undo(index: Index, document_id: str) -> None:
    try:
        await index.settle(document_id)
    except (NotFound, Unavailable):
        # The index was deleted or replaced, and the new chunks with it. Or the store is unavailable, and the mark
        # remains. In a shared store, `Index.settle_again` removes it.
        return
    except Exception:
        # The mark remains, so readers do not see the version, and the next start settles it.
        _log.exception("the chunks of a failed upsert were not removed", document=document_id)
