"""BM25 vectors by Qdrant Edge's own model, whatever the store: English stemming and stop words, k=1.2, b=0.75."""

from collections.abc import Sequence

from qdrant_edge import Bm25, SparseVector

from retriever.concurrency.scheduler import Scheduler
from retriever.ports.store import Terms
from retriever.stores.byte_cache import ByteCache

_SLICE = 16  # about 2 ms of texts of 200 words
_MOST_BYTES = 32 * 1024 * 1024
_WORD_BYTES = 72
"""What a word takes in `Terms`: an integer, a float, and their places in two lists."""


class Bm25Encoder:
    """See `retriever.ports.store.TermEncoder`. The store multiplies by the words' IDF."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._model = Bm25()
        # A text's words depend on the text alone: what is kept never ends to be right.
        self._passages: ByteCache[str, Terms] = ByteCache(_MOST_BYTES)

    def query(self, text: str) -> Terms:
        """The words of a query."""
        return _terms(self._model.embed_query(text))

    def passages(self, texts: Sequence[str]) -> list[Terms]:
        """The words of a few texts, at once; searches find the same passages again and again."""
        return [self._passage(text) for text in texts]

    def _passage(self, text: str) -> Terms:
        known = self._passages.get(text)
        if known is None:
            known = _terms(self._model.embed_document(text))
            self._passages.put(text, known, 4 * len(text) + _WORD_BYTES * len(known.indices))
        return known

    async def documents(self, texts: Sequence[str]) -> list[Terms]:
        """The words of texts, a few texts at a time."""
        terms: list[Terms] = []
        for start in range(0, len(texts), _SLICE):
            async with self._scheduler.slice():
                terms += [_terms(self._model.embed_document(text)) for text in texts[start : start + _SLICE]]
        return terms


def _terms(vector: SparseVector) -> Terms:
    return Terms(vector.indices, vector.values)
