"""The reranking step of a search. If the reranker fails, the order of the search remains."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog
from servicekit.errors import CausewayError

from retriever.domain.query import Passage, Query
from retriever.ports.reranker import Rating
from retriever.rerankers.registry import Rerankers
from retriever.rerankers.resilience import ResilientReranker

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Reranked:
    """The passages in their final order. The other fields are those of `domain.query.Retrieved`."""

    passages: list[Passage]
    reranker: str = ""
    not_reranked: str = ""


class Reranking:
    """Reranks passages.

    Args:
        rerankers: The configured rerankers.
    """

    def __init__(self, rerankers: Rerankers) -> None:
        self._rerankers = rerankers

    def reranker_for(self, query: Query) -> ResilientReranker | None:
        """Return the reranker of a query. Return None if the query does not request reranking, or no reranker
        is configured.

        Raises:
            NotFound: The query names a reranker that does not exist.
        """
        return None if query.rerank is None else self._rerankers.get(query.rerank.reranker)

    async def reranked(self, query: Query, passages: Sequence[Passage]) -> Reranked:
        """Return the passages ordered by the reranker's scores, without those below the minimum score.

        Passages that the reranker did not receive follow without a score, or are left out if there is a minimum
        score. If the reranker fails, the passages are unchanged.

        Raises:
            CausewayError: The reranker failed, and it is configured as required.
        """
        reranker = self.reranker_for(query)
        if reranker is None or query.rerank is None or not passages:
            return Reranked(list(passages))
        sent, unsent = passages[: reranker.candidates], passages[reranker.candidates :]
        try:
            ratings = await reranker.rate(query.text, [passage.text for passage in sent])
        except CausewayError as error:
            if reranker.required:
                raise
            _log.warning("not reranked", reranker=reranker.name, error=error.message, exc_info=error.__cause__)
            return Reranked(list(passages), not_reranked=error.message)
        rated = [
            replace(passage, reranker_score=rating.score, captions=_captions(query, passage, rating))
            for passage, rating in zip(sent, ratings, strict=True)
        ]
        minimum = query.rerank.minimum_score
        if minimum is not None:
            rated, unsent = [passage for passage in rated if _score(passage) >= minimum], []
        rated.sort(key=lambda passage: (-_score(passage), passage.id))
        return Reranked([*rated, *unsent], reranker=reranker.name)


def _captions(query: Query, passage: Passage, rating: Rating) -> tuple[str, ...]:
    """Return the reranker's captions that are part of the passage's text."""
    return tuple(caption for caption in rating.captions if query.captions and caption and caption in passage.text)


def _score(passage: Passage) -> float:
    assert passage.reranker_score is not None
    return passage.reranker_score
