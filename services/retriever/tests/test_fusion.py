"""Fusion: the same hits give the same order, whatever order they come in."""

import random

from hypothesis import given
from hypothesis import strategies as st
from retriever.fusion import RRF_K, Hit, ranked, reciprocal_rank

ids = st.text("abcdef", min_size=1, max_size=4)
rankings = st.lists(
    st.dictionaries(ids, st.sampled_from([0.0, 0.25, 0.5, 1.0, -1.0]), max_size=12).map(
        lambda scores: [Hit(*item) for item in scores.items()]
    ),
    min_size=1,
    max_size=3,
)


@given(rankings, st.randoms(use_true_random=False))
def test_order_in_which_hits_come_does_not_matter(hits: list[list[Hit]], rng: random.Random) -> None:
    """Hits shuffled within their rankings, and rankings swapped, give the same ids in the same order."""
    fused = reciprocal_rank([ranked(each) for each in hits])
    shuffled = [rng.sample(each, len(each)) for each in rng.sample(hits, len(hits))]
    again = reciprocal_rank([ranked(each) for each in shuffled])
    assert {hit.id for hit in again} == {hit.id for hit in fused}
    scores = {hit.id: hit.score for hit in fused}
    assert all(abs(hit.score - scores[hit.id]) < 1e-12 for hit in again)
    if len(hits) <= 2:  # a sum of two does not depend on their order, not even in its last bit
        assert again == fused


@given(rankings)
def test_order_is_by_score_and_then_by_id(hits: list[list[Hit]]) -> None:
    """Scores never rise down the list, and equal ones are ordered by id."""
    fused = reciprocal_rank([ranked(each) for each in hits])
    assert fused == sorted(fused, key=lambda hit: (-hit.score, hit.id))
    assert len({hit.id for hit in fused}) == len(fused)


@given(rankings, st.data())
def test_a_better_rank_never_lowers_the_score(hits: list[list[Hit]], data: st.DataObject) -> None:
    """Moving a chunk up in one ranking raises its fused score, or leaves it where it was first already."""
    ranking = data.draw(st.sampled_from(hits))
    if not ranking:
        return
    chosen = data.draw(st.sampled_from(ranking)).id
    before = {hit.id: hit.score for hit in reciprocal_rank([ranked(each) for each in hits])}
    raised = [[Hit(hit.id, 2.0) if hit.id == chosen and each is ranking else hit for hit in each] for each in hits]
    after = {hit.id: hit.score for hit in reciprocal_rank([ranked(each) for each in raised])}
    assert after[chosen] >= before[chosen]


def test_score_is_that_of_the_paper() -> None:
    """A chunk that is first here and third there has 1/61 + 1/63."""
    one = [Hit("a", 3.0), Hit("b", 2.0), Hit("c", 1.0)]
    other = [Hit("c", 9.0), Hit("d", 8.0), Hit("a", 7.0)]
    scores = {hit.id: hit.score for hit in reciprocal_rank([one, other])}
    assert scores["a"] == 1 / (RRF_K + 1) + 1 / (RRF_K + 3)
    assert scores["b"] == 1 / (RRF_K + 2)
