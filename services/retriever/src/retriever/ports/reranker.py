"""The port: what the retriever asks of a reranker.

Adapters: `clients.http_reranker`, `clients.triton_reranker` and `causeway_testing.retriever.reranker`. All pass the
same contract tests, tests/clients/test_rerankers.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from servicekit.errors import CausewayError


class Unranked(CausewayError):
    """A reranker's answer is none: something else than a score for each text, or an error that is its own."""


@dataclass(frozen=True, slots=True)
class Rating:
    """How well a text answers a query.

    Attributes:
        score: Higher is better; its scale is the model's.
        captions: Its best sentences, where the reranker gives them.
    """

    score: float
    captions: tuple[str, ...] = ()


class Reranker(Protocol):
    """Rates texts."""

    async def rate(self, query: str, texts: Sequence[str]) -> list[Rating]:
        """A rating for each text, in their order; none of the texts is blank, and there is at least one.

        Raises:
            Unavailable, DeadlineExceeded, RateLimited: The server does not answer, or not now.
            Unranked: What it answers is of no use.
        """
        ...

    async def aclose(self) -> None:
        """Closes the connections; closing twice changes nothing."""
        ...
