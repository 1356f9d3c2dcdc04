"""What a collection's directory says of it, and what is counted of its shard."""

from dataclasses import dataclass

import msgspec
from servicekit import keys

from retriever.domain.index import IndexSpec
from retriever.stores.vector_storage import VectorStorage

MANIFEST = "index.json"


class Manifest(msgspec.Struct, frozen=True):
    """What is in a collection's directory.

    Attributes:
        spec: The index.
        generation: Name of the current shard's directory.
        built: Points that the shard had when it was built.
        removed: Points that were removed from it since, as far as it was closed in order.
        note: What `LiveShard.put_note` keeps.
        vectors: How the shard keeps its dense vectors; earlier versions stored no value and kept full vectors.
    """

    spec: IndexSpec
    generation: int
    built: int = 0
    removed: int = 0
    note: bytes = b""
    vectors: VectorStorage = VectorStorage()

    @property
    def name(self) -> str:
        """The collection's."""
        return keys.collection(self.spec.tenant, self.spec.name)


@dataclass
class Tally:
    """What was done to a shard since it was built, or since that was last looked at."""

    added: int = 0
    removed: int = 0
