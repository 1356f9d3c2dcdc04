"""Metrics of a ranking: recall, MRR and nDCG, each as a mean over questions."""

import math
from collections.abc import Mapping, Sequence

Relevant = Mapping[str, int]


def found(ranking: Sequence[str], relevant: Relevant, k: int) -> bool:
    """Whether something relevant is among the first ``k``: what a question with one right page asks for."""
    return any(name in relevant for name in ranking[:k])


def recall(ranking: Sequence[str], relevant: Relevant, k: int) -> float:
    """Share of what is relevant that is among the first ``k``."""
    return len(relevant.keys() & set(ranking[:k])) / len(relevant)


def reciprocal_rank(ranking: Sequence[str], relevant: Relevant, k: int = 10) -> float:
    """1 / the rank of the first relevant one; 0 where none is among the first ``k``."""
    return next((1 / rank for rank, name in enumerate(ranking[:k], 1) if name in relevant), 0.0)


def ndcg(ranking: Sequence[str], relevant: Relevant, k: int = 10) -> float:
    """Normalised discounted cumulative gain with linear gains, as trec_eval has it."""
    gain = sum(relevant.get(name, 0) / math.log2(rank + 1) for rank, name in enumerate(ranking[:k], 1))
    best = sorted(relevant.values(), reverse=True)[:k]
    return gain / sum(grade / math.log2(rank + 1) for rank, grade in enumerate(best, 1))


def mean(values: Sequence[float]) -> float:
    """The mean; 0 of nothing."""
    return sum(values) / len(values) if values else 0.0
