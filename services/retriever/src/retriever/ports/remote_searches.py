"""The part of the port that stores across a network have: several searches in one call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from retriever.domain.ranking import Hit
from retriever.ports.store import Scope, StoredChunk, Terms


@dataclass(frozen=True, slots=True)
class Scored:
    """What several searches found in one call.

    Attributes:
        dense: Hits by cosine.
        sparse: Hits by BM25.
        cosines: Of what was found by words.
        words: BM25 scores of what was found by meaning or known before; 0 where a chunk has none of the words.
        chunks: What was found, by id.
    """

    dense: list[Hit]
    sparse: list[Hit]
    cosines: Mapping[str, float]
    words: Mapping[str, float]
    chunks: Mapping[str, StoredChunk]


class RemoteSearches(Protocol):
    """Searches that a store across a network makes in one call each."""

    async def hybrid(self, vector: Sequence[float], terms: Terms, limit: int, scope: Scope) -> Scored:
        """What `Collection.dense` and `Collection.sparse` return, and what each says of the other's hits."""
        ...

    async def further(
        self, vector: Sequence[float], terms: Terms, limit: int, scope: Scope, known: Sequence[str]
    ) -> Scored:
        """What `Collection.sparse` returns, the cosines of that, and the BM25 scores of ``known`` chunks."""
        ...
