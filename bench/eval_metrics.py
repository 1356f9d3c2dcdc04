"""Metrics of a ranking: recall, MRR and nDCG, each as a mean over questions."""

import math
from collections.abc import Mapping, Sequence

Relevant = Mapping[str, int]


def found(ranking: Sequence[str], relevant: Relevant, k: int) -> bool:
    """Return whether a relevant item is among the first ``k``."""
    return any(name in relevant for name in ranking[:k])


def recall(ranking: Sequence[str], relevant: Relevant, k: int) -> float:
    """Return the share of the relevant items that are among the first ``k``."""
    return len(relevant.keys() & set(ranking[:k])) / len(relevant)


def reciprocal_rank(ranking: Sequence[str], relevant: Relevant, k: int = 10) -> float:
    """Return 1 / the rank of the first relevant item, or 0 without a relevant item among the first ``k``."""
    return next((1 / rank for rank, name in enumerate(ranking[:k], 1) if name in relevant), 0.0)


def ndcg(ranking: Sequence[str], relevant: Relevant, k: int = 10) -> float:
    """Return the normalised discounted cumulative gain with linear gains, as in trec_eval."""
    gain = sum(relevant.get(name, 0) / math.log2(rank + 1) for rank, name in enumerate(ranking[:k], 1))
    best = sorted(relevant.values(), reverse=True)[:k]
    return gain / sum(grade / math.log2(rank + 1) for rank, grade in enumerate(best, 1))


def mean(values: Sequence[float]) -> float:
    """Return the mean, or 0 without values."""
    return sum(values) / len(values) if values else 0.0
