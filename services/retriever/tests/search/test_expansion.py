"""Query expansion with words of the best passages."""

from hypothesis import given
from hypothesis import strategies as st
from retriever.ports.store import Terms
from retriever.search.expansion import FEEDBACK_PASSAGES, MAX_CANDIDATES, MIN_CANDIDATES, expanded

QUERY = Terms([7], [1.0])


def words(*indices: int) -> Terms:
    return Terms(sorted(indices), [1.0] * len(indices))


def test_common_words_of_the_best_passages_are_added() -> None:
    """Common words of the best passages are added with small weights, lower if all candidates have them."""
    best = [words(1, 2, 7)] * FEEDBACK_PASSAGES
    others = [words(2, 100 + number) for number in range(MAX_CANDIDATES - FEEDBACK_PASSAGES)]
    terms = expanded(QUERY, best + others)
    weights = dict(zip(terms.indices, terms.weights, strict=True))
    assert set(weights) == {1, 2, 7}
    assert 1.0 < weights[7] < 1.2
    assert weights[2] < weights[1] < 0.2


def test_few_candidates_do_not_expand_a_query() -> None:
    """Too few candidates, or candidates without words, leave the query unchanged."""
    assert expanded(QUERY, [words(1)] * (MIN_CANDIDATES - 1)) == QUERY
    assert expanded(QUERY, [words()] * MIN_CANDIDATES) == QUERY


@given(st.lists(st.sets(st.integers(0, 40), max_size=8), min_size=MIN_CANDIDATES, max_size=MAX_CANDIDATES))
def test_the_querys_own_words_have_the_largest_weights(texts: list[set[int]]) -> None:
    """The query's own words have the largest weights, and the indices are ascending."""
    terms = expanded(QUERY, [words(*text) for text in texts])
    assert list(terms.indices) == sorted(set(terms.indices))
    weights = dict(zip(terms.indices, terms.weights, strict=True))
    assert weights[7] >= 1.0
    assert all(0 <= weight <= 0.1 for index, weight in weights.items() if index != 7)
