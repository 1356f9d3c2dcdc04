"""A reranker for tests: it rates a text by the share of the query's words that it has."""

from collections.abc import Sequence

from retriever.ports.reranker import Rating
from servicekit.errors import CausewayError


class WordsReranker:
    """See `rerankers.port.Reranker`.

    Attributes:
        failure: Raised instead of an answer, where set.
        asked: Queries and texts that came.
    """

    def __init__(self) -> None:
        self.failure: CausewayError | None = None
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    async def rate(self, query: str, texts: Sequence[str]) -> list[Rating]:
        """By words in common."""
        self.asked.append((query, tuple(texts)))
        if self.failure is not None:
            raise self.failure
        words = set(query.lower().split())
        return [Rating(len(words & set(text.lower().split())) / len(words)) for text in texts]

    async def aclose(self) -> None:
        """Nothing is open."""
