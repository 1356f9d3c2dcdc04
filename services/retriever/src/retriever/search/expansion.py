"""Further words for a query, from the passages that a first search has found: relevance feedback without a model.

A passage that answers a question often shares words with the other ones that do, and not with the question: "fare"
where somebody asks what a ticket costs. The words that the best passages have in common, and the other candidates
have not, are searched for as well, with a small weight. After the relevance models of Lavrenko and Croft 2001,
https://doi.org/10.1145/383952.383972, with weights that were measured (docs/retrieval.md).
"""

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from operator import neg

from retriever.ports.store import Terms

FEEDBACK = 5
"""The best passages, that the words come from."""
BACKGROUND = 30
"""The best candidates; a word that most of them have says nothing."""
LEAST_BACKGROUND = 15
"""With fewer candidates nothing tells what the best ones have in common from what all have."""
_WORDS = 10
_WEIGHT = 0.1  # of the best word; the query's own have 1


def expanded(query: Terms, candidates: Sequence[Terms]) -> Terms:
    """A query with the words that its best passages have in common.

    Args:
        query: As it was asked.
        candidates: The words of the first `BACKGROUND` candidates, best first.
    """
    if len(candidates) < LEAST_BACKGROUND:
        return query
    frequency = Counter(itertools.chain.from_iterable(each.indices for each in candidates))
    rarities = {each: rarity(each, len(candidates)) for each in set(frequency.values())}
    scores: dict[int, float] = {}
    for each in candidates[:FEEDBACK]:
        for index, weight in zip(each.indices, each.weights, strict=True):
            scores[index] = scores.get(index, 0.0) + weight * rarities[frequency[index]]
    best = [index for _, index in heapq.nsmallest(_WORDS, zip(map(neg, scores.values()), scores, strict=True))]
    if not best:
        return query
    weights = dict(zip(query.indices, query.weights, strict=True))
    for index in best:
        weights[index] = weights.get(index, 0.0) + _WEIGHT * (scores[index] / scores[best[0]])
    indices = sorted(weights)
    return Terms(indices, [weights[index] for index in indices])


def rarity(frequency: int, count: int) -> float:
    """The inverse document frequency that BM25 has."""
    return math.log(1 + (count - frequency + 0.5) / (frequency + 0.5))
