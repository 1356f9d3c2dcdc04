"""Maximal marginal relevance."""

from hypothesis import given
from hypothesis import strategies as st
from retriever.ports.store import Terms
from retriever.search.diversity import diverse

SAME, SAME_AGAIN, OTHER = (Terms([1, 2], [1.0, 1.0]), Terms([1, 2], [2.0, 2.0]), Terms([3], [1.0]))


def test_similar_passages_come_later() -> None:
    """With enough diversity, a copy of the best passage comes after a different one."""
    scores, texts = [1.0, 0.9, 0.3], [SAME, SAME_AGAIN, OTHER]
    assert diverse(scores, texts, 0.0, 3) == [0, 1, 2]
    assert diverse(scores, texts, 0.5, 3) == [0, 2, 1]
    assert diverse(scores, texts, 0.5, 2) == [0, 2]


@given(
    st.lists(st.floats(-5, 5), max_size=12).map(lambda scores: sorted(scores, reverse=True)),
    st.floats(0, 1),
    st.integers(0, 15),
)
def test_each_passage_is_chosen_once_and_the_best_first(scores: list[float], diversity: float, count: int) -> None:
    """Each passage is chosen once, the best first. Without diversity the order is that of the scores."""
    texts = [(SAME, OTHER)[at % 2] for at in range(len(scores))]
    chosen = diverse(scores, texts, diversity, count)
    assert len(chosen) == len(set(chosen)) == min(count, len(scores))
    if chosen:
        assert chosen[0] == 0
    assert diverse(scores, texts, 0.0, count) == list(range(len(chosen)))


def test_empty_lists_and_texts() -> None:
    """An empty list gives an empty result, and texts without words keep their order."""
    assert diverse([], [], 0.5, 3) == []
    assert diverse([1.0, 0.5], [Terms([], []), Terms([], [])], 0.5, 2) == [0, 1]
