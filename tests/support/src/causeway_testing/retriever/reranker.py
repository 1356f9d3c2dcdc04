"""A reranker for tests. The score of a text is the share of the query's words that the text contains."""

from collections.abc import Sequence

from retriever.ports.reranker import Rating
from servicekit.errors import CausewayError


class WordsReranker:
    """See `retriever.ports.reranker.Reranker`.

    Attributes:
        failure: An error that each call raises, or None.
        calls: The query and the texts of each call.
    """

    def __init__(self) -> None:
        self.failure: CausewayError | None = None
        self.calls: list[tuple[str, tuple[str, ...]]] = []

    async def rate(self, query: str, texts: Sequence[str]) -> list[Rating]:
        """Rate texts by common words."""
        self.calls.append((query, tuple(texts)))
        if self.failure is not None:
            raise self.failure
        words = set(query.lower().split())
        return [Rating(len(words & set(text.lower().split())) / len(words)) for text in texts]

    async def aclose(self) -> None:
        """Do nothing."""
