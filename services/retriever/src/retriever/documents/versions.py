"""Putting one version of a document in the place of another, wholly or not at all.

1. *Begin*: the document is marked. From here until the end it is locked, and seen as its record says.
2. *Stage*: chunks are stored as they come, under ids that depend on what they are alone, and nobody sees them.
3. *Commit*: the catalogue's record is replaced, which decides for good, and with it the new version is seen, and
   the old one is not. Then the log goes to the disk; what is answered after it is never lost.
4. *Settle*, in every case: the chunks that the record does not name are removed, and the mark with them.

A process that dies between two of these leaves the mark, and the next start, or another process where several share
a store, settles (`retriever.indexes.lifecycle`): up to
the record's replacement the old version is whole, from it on the new one.

A store in the process takes small documents in one step instead: `documents.group_commit`.
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
    """Whether what was sent is what is there already: a message that was delivered again.

    Raises:
        StaleGeneration: A newer generation is there.
        PermissionDenied: The document is there, and the caller may not see it.
    """
    same = stored.generation == sent.generation
    # Who sends the same again need not be able to see it: a worker stores on behalf of others.
    if not may_see(principal, stored.access) and not (same and stored.sha256 == sent.sha256):
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


async def put(
    indexes: Indexes,
    index: Index,
    document: Document,
    stage: Callable[[], Awaitable[Document]],
) -> Document:
    """Stores a version, and removes the one that is there. The document is held.

    Args:
        indexes: Of which ``index`` is one.
        index: Where to.
        document: The new version.
        stage: Stores its chunks, and returns the record of what it has stored.

    Returns:
        The record.
    """
    finish = indexes.shield.run
    await index.collection.mark(document.document_id)
    try:
        made = replace(await stage(), updated_at=datetime.now(UTC))
        async with index.lock.shared():
            await finish(_commit(indexes, index, made))
    except BaseException:
        await finish(_undo(index, document.document_id))
        raise
    return made


async def _commit(indexes: Indexes, index: Index, made: Document) -> None:
    await index.collection.put_record(made)
    await indexes.publish(index)
    index.note_language(made.text_language)
    await index.collection.sync()
    await index.settle(made.document_id)


async def _undo(index: Index, document_id: str) -> None:
    try:
        await index.settle(document_id)
    except (NotFound, Unavailable):
        return  # the index was deleted or replaced, with all that came in
    except Exception:
        # The mark stays: the version is not seen, and the next start settles it.
        _log.exception("an upsert that failed could not be cleared away", document=document_id)
