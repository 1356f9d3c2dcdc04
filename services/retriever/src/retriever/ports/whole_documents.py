"""The port: a collection that stores whole documents in one step.

Only a store in the process can: `stores.edge`. Elsewhere a document is marked, staged and committed step by step.
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
        former: The record of the version that is there; None for a new document.
    """

    document: Document
    points: Sequence[ChunkPoint]
    former: Document | None


@runtime_checkable
class WholeDocuments(Protocol):
    """What such a collection has besides the methods of `ports.store.Collection`."""

    async def put_documents(self, documents: Sequence[WholeDocument]) -> Collection[str]:
        """Store documents in one step, each in the place of the version that is there.

        Searches see each of them wholly or not at all, also after a crash.

        Returns:
            Ids of those that are marked now, because chunks of a former version have yet to be removed.

        Raises:
            Unavailable: There is no room; nothing changed.
        """
        ...
