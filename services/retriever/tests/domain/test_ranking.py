"""The order of hits."""

from hypothesis import given
from hypothesis import strategies as st
from retriever.domain.ranking import Hit, best, ranked

scores = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.sampled_from([0.0, 0.25, 0.5, 1.0]))


@given(scores, st.none() | st.integers(0, 40))
def test_best_returns_the_beginning_of_the_order(found: dict[str, float], limit: int | None) -> None:
    """The best hits are the beginning of the full order, also among equal scores."""
    assert best(found, limit) == ranked(map(Hit._make, found.items()))[:limit]
