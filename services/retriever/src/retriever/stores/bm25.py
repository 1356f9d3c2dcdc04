"""BM25 vectors by Qdrant Edge's own model, whatever the store: English stemming and stop words, k=1.2, b=0.75."""

from collections.abc import Sequence

from qdrant_edge import Bm25, SparseVector

from retriever.concurrency.scheduler import Scheduler
from retriever.ports.store import Terms

_SLICE = 16  # about 2 ms of texts of 200 words


class Bm25Encoder:
    """See `retriever.ports.store.TermEncoder`. The store multiplies by the words' IDF."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._model = Bm25()

    def query(self, text: str) -> Terms:
        """The words of a query."""
        return _terms(self._model.embed_query(text))

    def passages(self, texts: Sequence[str]) -> list[Terms]:
        """The words of a few texts, at once."""
        return [_terms(self._model.embed_document(text)) for text in texts]

    async def documents(self, texts: Sequence[str]) -> list[Terms]:
        """The words of texts, a few texts at a time."""
        terms: list[Terms] = []
        for start in range(0, len(texts), _SLICE):
            async with self._scheduler.slice():
                terms += [_terms(self._model.embed_document(text)) for text in texts[start : start + _SLICE]]
        return terms


def _terms(vector: SparseVector) -> Terms:
    return Terms(vector.indices, vector.values)
