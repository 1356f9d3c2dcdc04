"""The port for rerankers.

Adapters: `clients.http_reranker`, `clients.triton_reranker` and `causeway_testing.retriever.reranker`. All pass the
same contract tests, services/retriever/tests/clients/test_rerankers.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from servicekit.errors import CausewayError


class RerankerFailed(CausewayError):
    """A reranker returned an error, or a response without a score for each text."""


@dataclass(frozen=True, slots=True)
class Rating:
    """How well a text answers a query.

    Attributes:
        score: Higher is better. The scale depends on the model.
        captions: The best sentences, if the reranker returns them.
    """

    score: float
    captions: tuple[str, ...] = ()


class Reranker(Protocol):
    """Rates texts."""

    async def rate(self, query: str, texts: Sequence[str]) -> list[Rating]:
        """Return a rating for each text, in the order of the texts.

        Args:
            query: The query.
            texts: At least one text; none is blank.

        Raises:
            Unavailable, DeadlineExceeded, RateLimited: The server does not respond, or has no capacity.
            RerankerFailed: The server returned an error or an invalid response.
        """
        ...

    async def aclose(self) -> None:
        """Close the connections. A second call has no effect."""
        ...
