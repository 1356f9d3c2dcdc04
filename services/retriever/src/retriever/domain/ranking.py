"""Hits of a search, ordered by score and id so that the order is deterministic."""

import math
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import NamedTuple


class Hit(NamedTuple):
    """The id of a found chunk and its score."""

    id: str
    score: float


def ranked(hits: Iterable[Hit]) -> list[Hit]:
    """Return the hits, highest score first. Hits with the same score are ordered by id."""
    # Two stable sorts, each by one member, take a third of the time of one sort with a key function.
    by_id = sorted(hits, key=_ID)
    by_id.sort(key=_SCORE, reverse=True)
    return by_id


def best(scores: Mapping[str, float], limit: int | None = None) -> list[Hit]:
    """Return the best hits of these scores, at most ``limit``, in the order of `ranked`.

    >>> best({"a": 1.0, "b": 3.0, "c": 1.0}, limit=2)
    [Hit(id='b', score=3.0), Hit(id='a', score=1.0)]
    """
    items: Iterable[tuple[str, float]] = scores.items()
    if limit is not None and limit < len(scores):
        # Sorting all by score and a few by id is faster than sorting all by both.
        threshold = sorted(scores.values(), reverse=True)[limit - 1] if limit else math.inf
        items = [item for item in items if item[1] >= threshold]
    return ranked(map(Hit._make, items))[:limit]


_ID, _SCORE = itemgetter(0), itemgetter(1)
