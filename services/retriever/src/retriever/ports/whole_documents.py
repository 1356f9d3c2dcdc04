"""The port for collections that store whole documents in one step.

Only the embedded store (`stores.edge`) implements it, and `documents.group_commit` uses it for small documents.
Other documents, and those of a failed group, are marked, stored and committed step by step (`documents.versions`).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from retriever.domain.document import Document
from retriever.ports.store import ChunkPoint


@dataclass(frozen=True, slots=True)
class WholeDocument:
    """A version of a document with all of its chunks.

    Attributes:
        document: The record.
        points: The chunks.
        previous: The record of the stored version; None for a new document.
    """

    document: Document
    points: Sequence[ChunkPoint]
    previous: Document | None


@runtime_checkable
class WholeDocuments(Protocol):
    """A collection that stores whole documents in one step."""

    async def put_documents(self, documents: Sequence[WholeDocument]) -> Collection[str]:
        """Store documents in one step and replace their previous versions.

        Searches see each document completely or not at all, even after a crash.

        Returns:
            Ids of the documents that are now marked, because chunks of a previous version must still be removed.

        Raises:
            Unavailable: The store has no space; nothing changed.
        """
        ...
