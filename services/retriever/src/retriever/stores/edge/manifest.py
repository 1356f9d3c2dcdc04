"""The manifest of a collection's directory, and counts of changes of its shard."""

from dataclasses import dataclass

import msgspec
from servicekit import keys

from retriever.domain.index import IndexSpec
from retriever.stores.vector_storage import VectorStorage

MANIFEST = "index.json"


class Manifest(msgspec.Struct, frozen=True):
    """The manifest of a collection.

    Attributes:
        spec: The specification of the index.
        generation: Name of the current shard's directory.
        built: Number of points when the shard was built.
        removed: Number of points that were removed since, as of the last regular close.
        note: The note of `LiveShard.put_note`.
        vectors: The storage of the dense vectors. Earlier versions did not store it and kept full vectors.
    """

    spec: IndexSpec
    generation: int
    built: int = 0
    removed: int = 0
    note: bytes = b""
    vectors: VectorStorage = VectorStorage()

    @property
    def name(self) -> str:
        """The name of the collection."""
        return keys.collection(self.spec.tenant, self.spec.name)


@dataclass
class Tally:
    """The numbers of added and removed points since a shard was built, or since the last failed compaction."""

    added: int = 0
    removed: int = 0
