"""The marked documents of a collection, and which of their chunks are seen."""

from typing import Any

import qdrant_edge as edge
from servicekit import keys

from retriever.ports.store import EVERYTHING
from retriever.stores import payload
from retriever.stores.edge import schema

_SLICE = 1000


class Marks:
    """The marks of one collection.

    Args:
        shard: Read once: all marks in it are of a process that is gone.
        name: The collection's.

    Attributes:
        shown: Marked documents, each with the generation that is seen of it; None: nothing is.
    """

    def __init__(self, shard: edge.EdgeShard, name: str) -> None:
        self._name = name
        self._held: set[str] = set()
        self.shown: dict[str, int | None] = {each: self.generation(shard, each) for each in _marked(shard)}

    @property
    def held(self) -> int:
        """Number of documents that this process has marked."""
        return len(self._held)

    def hold(self, document_id: str, generation: int | None) -> None:
        """Take in that this process has marked a document."""
        self._held.add(document_id)
        self.shown[document_id] = generation

    def change(self, document_id: str, generation: int | None) -> None:
        """Take in that a document, if it is marked, is seen in another generation."""
        if document_id in self.shown:
            self.shown[document_id] = generation

    def release(self, document_id: str) -> None:
        """Take in that a document is marked no more."""
        self._held.discard(document_id)
        self.shown.pop(document_id, None)

    def abandoned(self) -> list[str]:
        """Return the documents that another process has marked, which is gone."""
        return [each for each in self.shown if each not in self._held]

    def generation(self, shard: edge.EdgeShard, document_id: str) -> int | None:
        """Return the generation that a document's record names; None without a record."""
        point = keys.document_point_id(self._name, document_id)
        found = shard.retrieve([point], with_payload=["record"], with_vector=False)
        return payload.record(found[0].payload or {}).generation if found else None


def _marked(shard: edge.EdgeShard) -> list[str]:
    """Ids of the documents with a mark: there are few."""
    ids: list[str] = []
    offset: Any = None
    while True:
        request = edge.ScrollRequest(
            offset=offset,
            limit=_SLICE,
            filter=schema.within(EVERYTHING, payload.MARK),
            with_payload=["document_id"],
        )
        points, offset = shard.scroll(request)
        ids += [(point.payload or {})["document_id"] for point in points]
        if offset is None:
            return ids
