"""Passages that say something new: maximal marginal relevance.

Carbonell and Goldstein 1998, https://doi.org/10.1145/290941.291025. How alike two passages are is told by their
words, which every mode and every embedding model has.
"""

import math
from collections.abc import Sequence

from retriever.ports.store import Terms


def diverse(scores: Sequence[float], words: Sequence[Terms], diversity: float, count: int) -> list[int]:
    """Places of the passages to take, in the order in which to show them.

    Each next one is the best by ``(1 - diversity) * relevance - diversity * likeness``: relevance is the score as a
    share of the best one (of the way from the least one, where that is below 0), likeness the cosine to the most
    similar one taken before.

    Args:
        scores: Of the passages, best first.
        words: Of the passages.
        diversity: 0 (the order stays) to 1 (only what is new counts).
        count: How many to take.
    """
    vectors = [_unit(each) for each in words]
    least, best = min((0.0, *scores)), max(scores, default=0.0)
    relevance = [(score - least) / (best - least) if best > least else 1.0 for score in scores]
    alike = [0.0] * len(scores)
    left = list(range(len(scores)))
    taken: list[int] = []
    while left and len(taken) < count:
        next_ = max(left, key=lambda at: ((1 - diversity) * relevance[at] - diversity * alike[at], -at))
        left.remove(next_)
        taken.append(next_)
        for at in left:
            alike[at] = max(alike[at], _dot(vectors[at], vectors[next_]))
    return taken


def _unit(terms: Terms) -> dict[int, float]:
    length = math.sqrt(sum(weight * weight for weight in terms.weights)) or 1.0
    return {index: weight / length for index, weight in zip(terms.indices, terms.weights, strict=True)}


def _dot(one: dict[int, float], other: dict[int, float]) -> float:
    if len(other) < len(one):
        one, other = other, one
    return sum(weight * other.get(index, 0.0) for index, weight in one.items())
