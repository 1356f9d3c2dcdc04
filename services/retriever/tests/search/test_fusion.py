"""Fusion: the order of the result does not depend on the order of the input."""

import random

from hypothesis import given
from hypothesis import strategies as st
from retriever.domain.ranking import Hit, ranked
from retriever.search.fusion import combined, contenders, reciprocal_rank

ids = st.text("abcdef", min_size=1, max_size=4)
rankings = st.lists(
    st.dictionaries(ids, st.sampled_from([0.0, 0.25, 0.5, 1.0, -1.0]), max_size=12).map(
        lambda scores: [Hit(*item) for item in scores.items()]
    ),
    min_size=1,
    max_size=3,
)


@given(rankings, st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(hits: list[list[Hit]], rng: random.Random) -> None:
    """Shuffled hits and rankings give the same scores. With one or two rankings, the order is also the same."""
    fused = reciprocal_rank([ranked(ranking) for ranking in hits])
    shuffled = [rng.sample(ranking, len(ranking)) for ranking in rng.sample(hits, len(hits))]
    again = reciprocal_rank([ranked(ranking) for ranking in shuffled])
    assert {hit.id for hit in again} == {hit.id for hit in fused}
    scores = {hit.id: hit.score for hit in fused}
    assert all(abs(hit.score - scores[hit.id]) < 1e-12 for hit in again)
    if len(hits) <= 2:  # a sum of two does not depend on their order, not even in its last bit
        assert again == fused


@given(rankings)
def test_order_is_by_score_and_then_by_id(hits: list[list[Hit]]) -> None:
    """Fused hits are ordered by descending score and then by id."""
    fused = reciprocal_rank([ranked(ranking) for ranking in hits])
    assert fused == sorted(fused, key=lambda hit: (-hit.score, hit.id))
    assert len({hit.id for hit in fused}) == len(fused)


@given(rankings, st.data())
def test_a_better_rank_never_lowers_the_score(hits: list[list[Hit]], data: st.DataObject) -> None:
    """A better rank in one ranking never lowers the fused score of a chunk."""
    ranking = data.draw(st.sampled_from(hits))
    if not ranking:
        return
    chosen = data.draw(st.sampled_from(ranking)).id
    before = {hit.id: hit.score for hit in reciprocal_rank([ranked(ranking) for ranking in hits])}
    raised = [
        [Hit(hit.id, 2.0) if hit.id == chosen and original is ranking else hit for hit in original]
        for original in hits
    ]
    after = {hit.id: hit.score for hit in reciprocal_rank([ranked(ranking) for ranking in raised])}
    assert after[chosen] >= before[chosen]


def test_the_score_of_reciprocal_rank_fusion() -> None:
    """The score is the sum of 1 / (60 + rank) over the rankings."""
    one = [Hit("a", 3.0), Hit("b", 2.0), Hit("c", 1.0)]
    other = [Hit("c", 9.0), Hit("d", 8.0), Hit("a", 7.0)]
    scores = {hit.id: hit.score for hit in reciprocal_rank([one, other])}
    assert scores["a"] == 1 / 61 + 1 / 63
    assert scores["b"] == 1 / 62


def test_ranks_can_be_weighted() -> None:
    """Each ranking contributes to a score in proportion to its weight. Chunks with score 0 are left out."""
    one, other = [Hit("a", 2.0), Hit("b", 1.0)], [Hit("c", 9.0), Hit("b", 8.0)]
    assert [hit.id for hit in reciprocal_rank([one, other], [1.0, 0.0])] == ["a", "b"]
    assert [hit.id for hit in reciprocal_rank([one, other], [0.5, 1.5])] == ["b", "c", "a"]


def test_scores_are_shares_of_the_best() -> None:
    """The score is the weighted mean of cosine and BM25 score, each divided by its maximum. A negative cosine
    counts as 0.
    """
    fused = combined([{"a": 0.8, "b": 0.4, "c": -0.2}], {"a": 0.0, "b": 10.0, "c": 5.0}, 0.5)
    assert fused == [Hit("b", 0.75), Hit("a", 0.5), Hit("c", 0.25)]
    assert combined([{"a": 0.8, "b": 0.4}], {"b": 10.0}, 1.0) == [Hit("a", 1.0), Hit("b", 0.5)]
    assert [hit.id for hit in combined([{"a": 0.8}], {"b": 10.0}, 0.0)] == ["b", "a"]


def test_cosines_are_normalised_for_each_model() -> None:
    """The best passage of each model has the cosine 1 after normalisation."""
    fused = combined([{"a": 0.9, "b": 0.45}, {"c": 0.3}], {}, 1.0)
    assert fused == [Hit("a", 1.0), Hit("c", 1.0), Hit("b", 0.5)]


scores = st.dictionaries(ids, st.floats(-1, 50, width=16), max_size=12)


@given(scores, scores, st.floats(0, 1))
def test_combined_scores_are_shares(dense: dict[str, float], words: dict[str, float], weight: float) -> None:
    """Combined scores are between 0 and 1, for every chunk of either search. Scores of 0 are ordered by cosine."""
    fused = combined([dense], words, weight)
    assert {hit.id for hit in fused} == dense.keys() | words.keys()
    assert all(0 <= hit.score <= 1 + 1e-9 for hit in fused)
    assert fused == sorted(fused, key=lambda hit: (-hit.score, 0 if hit.score else -dense.get(hit.id, 0), hit.id))


@given(scores, scores, st.floats(0, 1), st.integers(0, 12))
def test_a_limit_returns_the_beginning_of_the_order(
    dense: dict[str, float], words: dict[str, float], weight: float, most: int
) -> None:
    """A limited result is the beginning of the full order."""
    assert combined([dense], words, weight, most) == combined([dense], words, weight)[:most]


cosines = st.dictionaries(ids, st.floats(-1, 1, width=16), max_size=15)
words = st.dictionaries(ids, st.floats(0, 20, width=16), max_size=15)


@given(
    st.lists(cosines, min_size=1, max_size=2),
    words,
    st.sampled_from([0.0, 0.3, 0.5, 1.0]),
    st.integers(0, 15),
    st.data(),
)
def test_the_scores_of_contenders_suffice(
    dense: list[dict[str, float]], every: dict[str, float], weight: float, found: int, data: st.DataObject
) -> None:
    """The best chunks are the same with the BM25 scores of contenders as with all of them."""
    dense = [{f"{number}{id_}": cosine for id_, cosine in cosines.items()} for number, cosines in enumerate(dense)]
    every = {f"{data.draw(st.integers(0, len(dense) - 1))}{id_}": score for id_, score in every.items()}
    most = data.draw(st.none() | st.integers(1, 10))
    known = dict(sorted(every.items(), key=lambda item: -item[1])[:found])
    bound = min(known.values(), default=0.0) if found < len(every) else 0.0
    candidates = set(known).union(*dense)
    missing = contenders(dense, known, weight, bound, most)
    scored = known | {id_: every.get(id_, 0.0) for id_ in missing}
    whole = {id_: every.get(id_, 0.0) for id_ in candidates}
    assert combined(dense, scored, weight, most) == combined(dense, whole, weight, most)


def test_chunks_that_cannot_be_among_the_best_are_no_contenders() -> None:
    """A chunk without a BM25 score is a contender if it is among the best with the highest possible score."""
    dense = [{"a": 1.0, "b": 0.8, "c": 0.5, "d": 0.1}]
    known = {"a": 10.0, "e": 4.0}
    assert contenders(dense, known, 0.5, 4.0, 1) == []
    assert contenders(dense, known, 0.5, 4.0, 2) == ["b", "c"]
    assert contenders(dense, known, 0.5, 4.0, None) == ["b", "c", "d"]
