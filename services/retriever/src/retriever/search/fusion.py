"""Fusion of rankings. Fused hits have the order of `domain.ranking`."""

from collections.abc import Iterable, Mapping, Sequence

from retriever.domain.ranking import Hit, best, ranked

RRF_K = 60
"""Rank constant of reciprocal rank fusion: Cormack, Clarke, Büttcher 2009, https://doi.org/10.1145/1571941.1572114"""


def reciprocal_rank(rankings: Iterable[Sequence[Hit]], weights: Sequence[float] | None = None) -> list[Hit]:
    """Fuse rankings by rank. Ranks start at 1.

    A chunk's score is the sum of weight / (60 + rank) over the rankings that have it. Chunks with score 0 are left
    out.

    Args:
        rankings: The rankings, each best first.
        weights: The weight of each ranking. None: each has weight 1.

    >>> by_cosine = [Hit("a", 0.9), Hit("b", 0.8)]
    >>> by_words = [Hit("b", 12.0), Hit("c", 7.0)]
    >>> [(hit.id, round(hit.score, 4)) for hit in reciprocal_rank([by_cosine, by_words])]
    [('b', 0.0325), ('a', 0.0164), ('c', 0.0161)]
    """
    scores: dict[str, float] = {}
    for number, ranking in enumerate(rankings):
        weight = 1.0 if weights is None else weights[number]
        for rank, hit in enumerate(ranking, 1):
            scores[hit.id] = scores.get(hit.id, 0.0) + weight / (RRF_K + rank)
    return ranked(Hit(id_, score) for id_, score in scores.items() if score)


def combined(
    dense: Sequence[Mapping[str, float]], bm25: Mapping[str, float], dense_weight: float, limit: int | None = None
) -> list[Hit]:
    """Fuse by score: the weighted mean of cosine and BM25 score, each divided by its maximum. Results are 0 to 1.

    Negative cosines and missing scores count as 0. Hits with score 0 are ordered by their cosines.
    This is the convex combination with theoretical minima of Bruch, Gai, Ingber 2023,
    https://doi.org/10.1145/3596512.

    Args:
        dense: Cosines by chunk, one mapping for each embedding model.
        bm25: BM25 scores by chunk.
        dense_weight: Weight of the cosine, 0 to 1. The weight of the BM25 score is 1 minus this weight.
        limit: Maximum number of hits. None: all.

    >>> combined([{"a": 0.9, "b": 0.45}], {"b": 12.0}, dense_weight=0.5)
    [Hit(id='b', score=0.75), Hit(id='a', score=0.5)]
    """
    scores = _sums(dense, bm25, dense_weight)
    found = best(scores, limit)
    if not found or found[-1].score > 0:
        return found
    known = {id_: cosine for cosines in dense for id_, cosine in cosines.items()}
    return sorted(best(scores), key=lambda hit: (-hit.score, 0.0 if hit.score else -known.get(hit.id, 0.0)))[:limit]


def contenders(
    dense: Sequence[Mapping[str, float]],
    bm25: Mapping[str, float],
    dense_weight: float,
    bound: float,
    limit: int | None,
) -> list[str]:
    """Return the chunks without a known BM25 score that can be among the hits of `combined`.

    The caller reads the BM25 scores of these chunks before it calls `combined`.

    Args:
        dense: See `combined`.
        bm25: The known BM25 scores.
        dense_weight: See `combined`.
        bound: Upper bound of the missing BM25 scores. It must not exceed the highest known score.
        limit: See `combined`.

    >>> contenders([{"a": 0.9, "b": 0.6, "c": 0.1}], {"a": 12.0, "d": 6.0}, dense_weight=0.5, bound=6.0, limit=2)
    ['b']
    """
    scores = _sums(dense, bm25, dense_weight)
    missing = [id_ for id_ in scores if id_ not in bm25]
    if limit is None or limit >= len(scores) or not bm25:
        return missing
    threshold = sorted(scores.values(), reverse=True)[limit - 1]
    highest = max(bm25.values())
    gain = (1 - dense_weight) * (bound / highest) if highest > 0 else 0.0
    return [id_ for id_ in missing if scores[id_] + gain >= threshold]


def _sums(dense: Sequence[Mapping[str, float]], bm25: Mapping[str, float], dense_weight: float) -> dict[str, float]:
    """Return the score of each chunk; see `combined`."""
    sums: dict[str, float] = {}
    for cosines in dense:
        sums |= _shares(cosines, dense_weight)
    return sums | {id_: sums.get(id_, 0.0) + share for id_, share in _shares(bm25, 1 - dense_weight).items()}


def _shares(scores: Mapping[str, float], weight: float) -> dict[str, float]:
    """Return the scores divided by the highest score, times a weight. Negative scores count as 0."""
    highest = max(scores.values(), default=0.0)
    if highest <= 0:
        return dict.fromkeys(scores, 0.0)
    return {id_: weight * (score / highest) if score > 0 else 0.0 for id_, score in scores.items()}
