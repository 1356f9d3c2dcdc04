"""Diversity of passages by maximal marginal relevance.

Carbonell and Goldstein 1998, https://doi.org/10.1145/290941.291025. The similarity of two passages is computed from
their terms, because terms exist in each search mode and with each embedding model.
"""

import math
from collections.abc import Sequence

from retriever.ports.store import Terms


def diverse(scores: Sequence[float], terms: Sequence[Terms], diversity: float, count: int) -> list[int]:
    """Return the positions of the chosen passages, in the order in which to show them.

    Each step chooses the passage with the highest ``(1 - diversity) * relevance - diversity * similarity``.
    Relevance is the score divided by the best score, after a shift if the lowest score is negative. Similarity is
    the cosine to the most similar passage that was chosen before.

    Args:
        scores: The scores of the passages, best first.
        terms: The terms of the passages.
        diversity: From 0 (keep the order) to 1 (ignore relevance).
        count: Number of passages to choose.
    """
    vectors = [_unit(passage_terms) for passage_terms in terms]
    lowest, best = min((0.0, *scores)), max(scores, default=0.0)
    relevance = [(score - lowest) / (best - lowest) if best > lowest else 1.0 for score in scores]
    similarity = [0.0] * len(scores)
    remaining = list(range(len(scores)))
    chosen: list[int] = []
    while remaining and len(chosen) < count:
        next_ = max(remaining, key=lambda at: ((1 - diversity) * relevance[at] - diversity * similarity[at], -at))
        remaining.remove(next_)
        chosen.append(next_)
        for at in remaining:
            similarity[at] = max(similarity[at], _dot(vectors[at], vectors[next_]))
    return chosen


def _unit(terms: Terms) -> dict[int, float]:
    length = math.sqrt(sum(weight * weight for weight in terms.weights)) or 1.0
    return {index: weight / length for index, weight in zip(terms.indices, terms.weights, strict=True)}


def _dot(left: dict[int, float], right: dict[int, float]) -> float:
    if len(right) < len(left):
        left, right = right, left
    return sum(weight * right.get(index, 0.0) for index, weight in left.items())
