"""The marked documents of a collection, and their visible generations."""

from typing import Any

import qdrant_edge as edge
from servicekit import keys

from retriever.domain.scope import EVERYTHING
from retriever.stores import payload
from retriever.stores.edge import schema

_SLICE = 1000


class Marks:
    """The marks of one collection.

    Args:
        shard: The shard. The marks that it has now are from a terminated process.
        name: The name of the collection.

    Attributes:
        visible_generations: The visible generation of each marked document; None: no chunk is visible.
    """

    def __init__(self, shard: edge.EdgeShard, name: str) -> None:
        self._name = name
        self._held: set[str] = set()
        self.visible_generations: dict[str, int | None] = {
            document_id: self.generation(shard, document_id) for document_id in _marked(shard)
        }

    @property
    def held_count(self) -> int:
        """Number of documents that this process has marked."""
        return len(self._held)

    def hold(self, document_id: str, generation: int | None) -> None:
        """Note that this process has marked a document."""
        self._held.add(document_id)
        self.visible_generations[document_id] = generation

    def set_generation(self, document_id: str, generation: int | None) -> None:
        """Change the visible generation of a document if it is marked."""
        if document_id in self.visible_generations:
            self.visible_generations[document_id] = generation

    def release(self, document_id: str) -> None:
        """Note that a document is no longer marked."""
        self._held.discard(document_id)
        self.visible_generations.pop(document_id, None)

    def abandoned(self) -> list[str]:
        """Return the documents that a terminated process has left marked."""
        return [document_id for document_id in self.visible_generations if document_id not in self._held]

    def generation(self, shard: edge.EdgeShard, document_id: str) -> int | None:
        """Return the generation that a document's record names, or None without a record."""
        point = keys.document_point_id(self._name, document_id)
        found = shard.retrieve([point], with_payload=["record"], with_vector=False)
        return payload.decode_record(found[0].payload or {}).generation if found else None


def _marked(shard: edge.EdgeShard) -> list[str]:
    """Return the ids of the marked documents, which are few."""
    ids: list[str] = []
    offset: Any = None
    while True:
        request = edge.ScrollRequest(
            offset=offset,
            limit=_SLICE,
            filter=schema.scope_filter(EVERYTHING, payload.MARK),
            with_payload=["document_id"],
        )
        points, offset = shard.scroll(request)
        ids += [(point.payload or {})["document_id"] for point in points]
        if offset is None:
            return ids
