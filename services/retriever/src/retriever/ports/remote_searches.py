"""The part of the port that only remote stores implement: several searches in one call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from retriever.domain.ranking import Hit
from retriever.domain.scope import Scope
from retriever.ports.store import StoredChunk, Terms


@dataclass(frozen=True, slots=True)
class Scored:
    """The results of several searches in one call.

    Attributes:
        dense: Hits by cosine.
        sparse: Hits by BM25.
        cosines: Cosines of the sparse hits.
        words: BM25 scores of the dense hits and of the known chunks; 0 for a chunk that has none of the terms.
        chunks: The found chunks by id.
    """

    dense: list[Hit]
    sparse: list[Hit]
    cosines: Mapping[str, float]
    words: Mapping[str, float]
    chunks: Mapping[str, StoredChunk]


class RemoteSearches(Protocol):
    """Searches that a remote store runs in one call each."""

    async def hybrid(self, vector: Sequence[float], terms: Terms, limit: int, scope: Scope) -> Scored:
        """Return the hits of `Collection.dense` and `Collection.sparse`, with both scores of each."""
        ...

    async def further(
        self, vector: Sequence[float], terms: Terms, limit: int, scope: Scope, known: Sequence[str]
    ) -> Scored:
        """Return the hits of `Collection.sparse` with their cosines, and the BM25 scores of ``known`` chunks."""
        ...
