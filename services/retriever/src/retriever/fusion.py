"""Rankings and their fusion. Everything is ordered by (score, id), so the same hits always give the same order."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

RRF_K = 60
"""Rank constant of reciprocal rank fusion: Cormack, Clarke, Büttcher 2009, https://doi.org/10.1145/1571941.1572114"""


class Hit(NamedTuple):
    """A chunk that a search found, by its id, and its score there."""

    id: str
    score: float


def ranked(hits: Iterable[Hit]) -> list[Hit]:
    """Highest score first, ties by id."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))


def reciprocal_rank(rankings: Iterable[Sequence[Hit]]) -> list[Hit]:
    """Fuses rankings: a chunk's score is the sum of 1 / (60 + rank) over those that it is in, ranks from 1."""
    scores: dict[str, float] = {}
    for ranking in rankings:
        for rank, hit in enumerate(ranking, 1):
            scores[hit.id] = scores.get(hit.id, 0.0) + 1 / (RRF_K + rank)
    return ranked(Hit(id_, score) for id_, score in scores.items())
