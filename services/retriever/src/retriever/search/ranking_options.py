"""Ranking options of a search: from the query, its indexes or the defaults, in this order."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from retriever.domain.index import Fusion, IndexSettings
from retriever.domain.query import Mode, Query

T = TypeVar("T")

DEFAULT_DENSE_WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class RankingOptions:
    """The ranking options of one search.

    Attributes:
        fusion: How a hybrid search fuses its rankings.
        dense_weight: Weight of the dense ranking, 0 to 1. The weight of the sparse ranking is 1 minus this weight.
        expand: Whether the query is expanded.
    """

    fusion: Fusion
    dense_weight: float
    expand: bool


def resolve_options(query: Query, settings: Iterable[IndexSettings]) -> RankingOptions:
    """Return the ranking options of a query.

    All passages are ranked together. So an index setting applies only if all searched indexes agree on it. A search
    by vectors, or one that skips missing scores, never expands the query.

    Args:
        query: The query. Its own options take precedence.
        settings: The settings of the searched indexes.
    """
    settings = tuple(settings)
    fusion = _first(query.fusion, _agreed(index_settings.fusion for index_settings in settings), Fusion.SCORES)
    expands_by_default = query.mode is Mode.HYBRID and fusion is Fusion.SCORES
    may_expand = query.mode is not Mode.VECTORS and not query.skip_missing_scores
    return RankingOptions(
        fusion,
        _first(
            query.dense_weight,
            _agreed(index_settings.dense_weight for index_settings in settings),
            DEFAULT_DENSE_WEIGHT,
        ),
        may_expand
        and _first(query.expand, _agreed(index_settings.expand for index_settings in settings), expands_by_default),
    )


def _agreed(values: Iterable[T]) -> T | None:
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def _first(requested: T | None, agreed: T | None, default: T) -> T:
    return next((value for value in (requested, agreed) if value is not None), default)
