"""The part of the store port that only remote stores implement: several searches in one call."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from retriever.domain.scope import Scope
from retriever.ports.store import StoredChunk, Terms


@dataclass(frozen=True, slots=True)
class Scored:
    """The results of several searches in one call. The scores are by chunk id.

    Attributes:
        dense: The highest cosines.
        sparse: The highest BM25 scores.
        cosines: Cosines of the chunks in ``sparse``.
        bm25: BM25 scores of the chunks in ``dense``, or of the chunks that `sparse_with_cosines` receives as
            ``known``; 0 for a chunk without a term of the query.
        chunks: The found chunks by id.
    """

    dense: Mapping[str, float]
    sparse: Mapping[str, float]
    cosines: Mapping[str, float]
    bm25: Mapping[str, float]
    chunks: Mapping[str, StoredChunk]


class RemoteSearches(Protocol):
    """Searches that a remote store runs in one call each."""

    async def hybrid(self, vector: Sequence[float], terms: Terms, limit: int, scope: Scope) -> Scored:
        """Return the results of `Collection.dense` and `Collection.sparse`, with both scores of each chunk."""
        ...

    async def sparse_with_cosines(
        self, vector: Sequence[float], terms: Terms, limit: int, scope: Scope, known: Sequence[str]
    ) -> Scored:
        """Run `Collection.sparse`, and also score the found chunks by cosine and some known chunks by BM25.

        Args:
            vector: The vector of the query.
            terms: The terms of the query.
            limit: Maximum number of chunks that the sparse search finds.
            scope: The scope of the searches.
            known: Ids of the chunks to score by BM25 even if the sparse search does not find them.

        Returns:
            The scores. ``dense`` is empty.
        """
        ...
