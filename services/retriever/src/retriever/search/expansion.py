"""Query expansion from the passages that a first search found: pseudo-relevance feedback.

Passages that answer a question often share words that the question does not have. Answers to "What does a ticket
cost?" contain "fare". The search adds, with a small weight, words that the best passages share and that are rare
among the candidates. The method follows the relevance models of Lavrenko and Croft 2001,
https://doi.org/10.1145/383952.383972. The weights were measured (bench/README.md).
"""

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from operator import neg

from retriever.ports.store import Terms

FEEDBACK_PASSAGES = 5
"""Number of best passages that supply the words."""
MAX_CANDIDATES = 30
"""Number of best candidates in which the frequency of words is counted. A word that most candidates have gets a low
score."""
MIN_CANDIDATES = 15
"""With fewer candidates, the query is not expanded: the words of the best passages and of all candidates do not
differ enough."""
_MAX_ADDED_WORDS = 10
_MAX_ADDED_WEIGHT = 0.1  # weight of the best added word; words of the query have weight 1


def expanded(query: Terms, candidates: Sequence[Terms]) -> Terms:
    """Return the query, expanded by the words that its best passages share. With few candidates, it is unchanged.

    Args:
        query: The terms of the query.
        candidates: The terms of the first `MAX_CANDIDATES` candidates, best first.
    """
    if len(candidates) < MIN_CANDIDATES:
        return query
    feedback = candidates[:FEEDBACK_PASSAGES]
    # Only the words of the best passages are counted, because most words occur only in other candidates.
    counted = set(itertools.chain.from_iterable(passage_terms.indices for passage_terms in feedback))
    frequency = Counter(
        itertools.chain.from_iterable(counted.intersection(passage_terms.indices) for passage_terms in candidates)
    )
    idfs = {count: idf(count, len(candidates)) for count in set(frequency.values())}
    scores: dict[int, float] = {}
    for passage_terms in feedback:
        for index, weight in zip(passage_terms.indices, passage_terms.weights, strict=True):
            scores[index] = scores.get(index, 0.0) + weight * idfs[frequency[index]]
    best = [
        index for _, index in heapq.nsmallest(_MAX_ADDED_WORDS, zip(map(neg, scores.values()), scores, strict=True))
    ]
    if not best:
        return query
    weights = dict(zip(query.indices, query.weights, strict=True))
    for index in best:
        weights[index] = weights.get(index, 0.0) + _MAX_ADDED_WEIGHT * (scores[index] / scores[best[0]])
    indices = sorted(weights)
    return Terms(indices, [weights[index] for index in indices])


def idf(frequency: int, count: int) -> float:
    """Return the inverse document frequency (IDF) of a word, as BM25 defines it.

    Args:
        frequency: Number of texts that contain the word.
        count: Number of all texts.
    """
    return math.log(1 + (count - frequency + 0.5) / (frequency + 0.5))
