"""What a search does with a reranker: its order, or the search's own and a word about why."""

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
    """Passages in the order that they are to have; the rest is as of `queries.Retrieved`."""

    passages: list[Passage]
    reranker: str = ""
    not_reranked: str = ""


class Reranking:
    """Has a reranker order what was found.

    Args:
        rerankers: Those that are configured.
    """

    def __init__(self, rerankers: Rerankers) -> None:
        self._rerankers = rerankers

    def reranker_for(self, query: Query) -> ResilientReranker | None:
        """The one that a query wants, where it wants one and there are any.

        Raises:
            NotFound: It names one that there is not.
        """
        return None if query.rerank is None else self._rerankers.get(query.rerank.reranker)

    async def reranked(self, query: Query, passages: Sequence[Passage]) -> Reranked:
        """The passages by the reranker's scores, less those that it rates too low.

        Those that it was not given stand behind, without a score, and are left out where there is a minimum. Where
        the reranker fails, all stay as they are.

        Raises:
            CausewayError: What it raises, where the configuration requires it.
        """
        reranker = self.reranker_for(query)
        if reranker is None or query.rerank is None or not passages:
            return Reranked(list(passages))
        given, rest = passages[: reranker.candidates], passages[reranker.candidates :]
        try:
            ratings = await reranker.rate(query.text, [passage.text for passage in given])
        except CausewayError as error:
            if reranker.required:
                raise
            _log.warning("not reranked", reranker=reranker.name, error=error.message, exc_info=error.__cause__)
            return Reranked(list(passages), not_reranked=error.message)
        rated = [
            replace(passage, reranker_score=rating.score, captions=_captions(query, passage, rating))
            for passage, rating in zip(given, ratings, strict=True)
        ]
        least = query.rerank.minimum_score
        if least is not None:
            rated, rest = [each for each in rated if _score(each) >= least], []
        rated.sort(key=lambda passage: (-_score(passage), passage.id))
        return Reranked([*rated, *rest], reranker=reranker.name)


def _captions(query: Query, passage: Passage, rating: Rating) -> tuple[str, ...]:
    """The reranker's captions, those that are the passage's own words."""
    return tuple(each for each in rating.captions if query.captions and each and each in passage.text)


def _score(passage: Passage) -> float:
    assert passage.reranker_score is not None
    return passage.reranker_score
