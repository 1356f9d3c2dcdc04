"""The port for encoders of texts for sparse search."""

from collections.abc import Sequence
from typing import Protocol

from retriever.ports.store import Terms


class TermEncoder(Protocol):
    """Encodes texts as sparse vectors whose dot product, with the store's IDF, is BM25.

    Languages are those of `domain.language`.
    """

    def encode_query(self, text: str, language: str) -> Terms:
        """Return the terms of a query, each with weight 1. The result is empty if all words are stop words."""
        ...

    async def encode_documents(self, texts: Sequence[str], language: str) -> list[Terms]:
        """Return the terms of texts of a document in this language, weighted by their frequency in the text."""
        ...

    def encode_passages(self, texts: Sequence[str], language: str) -> list[Terms]:
        """Return the same terms as `encode_documents`, without waiting, for the few texts of a search."""
        ...

    def can_tokenize(self, text: str, language: str) -> bool:
        """Return whether the language's tokenizer can split the text into words."""
        ...
