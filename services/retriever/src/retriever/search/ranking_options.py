"""Ranking options of a search: the query's, else those of its indexes, else the defaults."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from retriever.domain.index import Fusion, IndexSettings
from retriever.domain.query import Mode, Query

T = TypeVar("T")

DENSE_WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class RankingOptions:
    """What holds for one search.

    Attributes:
        fusion: How the rankings of a hybrid search become one.
        dense_weight: What meaning counts for in it, 0 to 1, words having the rest.
        expand: Further words are searched for.
    """

    fusion: Fusion
    dense_weight: float
    expand: bool


def resolve_options(query: Query, settings: Iterable[IndexSettings]) -> RankingOptions:
    """How a query's searches are options.

    All passages come in one order, so that what the settings of its indexes say holds only where they agree.

    Args:
        query: What it says itself comes first.
        settings: Of the indexes that it goes to.
    """
    settings = tuple(settings)
    fusion = _first(query.fusion, _agreed(each.fusion for each in settings), Fusion.SCORES)
    hybrid_by_scores = query.mode is Mode.HYBRID and fusion is Fusion.SCORES
    may_expand = query.mode is not Mode.VECTORS and not query.skip_missing_scores
    return RankingOptions(
        fusion,
        _first(query.dense_weight, _agreed(each.dense_weight for each in settings), DENSE_WEIGHT),
        may_expand and _first(query.expand, _agreed(each.expand for each in settings), hybrid_by_scores),
    )


def _agreed(values: Iterable[T]) -> T | None:
    different = set(values)
    return different.pop() if len(different) == 1 else None


def _first(said: T | None, agreed: T | None, otherwise: T) -> T:
    return next((each for each in (said, agreed) if each is not None), otherwise)
