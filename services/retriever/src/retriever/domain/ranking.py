"""Hits of a search and their order. Everything is ordered by (score, id): the same hits give the same order."""

from collections.abc import Iterable
from typing import NamedTuple


class Hit(NamedTuple):
    """A chunk that a search found, by its id, and its score there."""

    id: str
    score: float


def ranked(hits: Iterable[Hit]) -> list[Hit]:
    """Highest score first, ties by id."""
    return sorted(hits, key=lambda hit: (-hit.score, hit.id))
