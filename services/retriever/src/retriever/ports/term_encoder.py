"""The port: what text search makes of texts."""

from collections.abc import Sequence
from typing import Protocol

from retriever.ports.store import Terms


class TermEncoder(Protocol):
    """Text to sparse vectors whose dot product, with the store's IDF, is BM25.

    A language is one of `domain.language`.
    """

    def query(self, text: str, language: str) -> Terms:
        """The words of a query in a language, each with weight 1; empty where it has none that count."""
        ...

    async def documents(self, texts: Sequence[str], language: str) -> list[Terms]:
        """The words of texts of a document in this language, weighted by their frequency."""
        ...

    def passages(self, texts: Sequence[str], language: str) -> list[Terms]:
        """As `documents`, for the few texts that a search is waiting for."""
        ...

    def fits(self, text: str, language: str) -> bool:
        """Whether what is made of a text are its words: not so where rules for spaces meet a text without."""
        ...
