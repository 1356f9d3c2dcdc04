"""The options of a ranking come from the query, else from its indexes, else from the defaults."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from retriever.domain.index import Fusion, IndexSettings
from retriever.domain.query import Mode, Query
from retriever.search.ranking_options import DENSE_WEIGHT, RankingOptions, resolve_options

NOTHING = IndexSettings()
BY_RANKS = IndexSettings(fusion=Fusion.RANKS, dense_weight=0.25, expand=True)

settings = st.builds(
    IndexSettings,
    fusion=st.none() | st.sampled_from(Fusion),
    dense_weight=st.none() | st.floats(0, 1),
    expand=st.none() | st.booleans(),
)


def asked(**said: object) -> Query:
    return Query(("a", "b"), "ferry", **said)  # type: ignore[arg-type]  # tests name fields that it has


def test_without_a_word_it_is_by_scores() -> None:
    """By default, scores are fused with equal weights, and only a hybrid fusion of scores expands."""
    assert resolve_options(asked(), [NOTHING]) == RankingOptions(Fusion.SCORES, DENSE_WEIGHT, expand=True)
    assert not resolve_options(asked(mode=Mode.TEXT), [NOTHING]).expand
    assert not resolve_options(asked(fusion=Fusion.RANKS), [NOTHING]).expand


def test_an_index_says_what_the_query_does_not() -> None:
    """An index sets each option that the query does not set."""
    assert resolve_options(asked(), [BY_RANKS]) == RankingOptions(Fusion.RANKS, 0.25, expand=True)
    said = asked(fusion=Fusion.SCORES, dense_weight=0.0, expand=False)
    assert resolve_options(said, [BY_RANKS]) == RankingOptions(Fusion.SCORES, 0.0, expand=False)
    assert resolve_options(asked(dense_weight=1.0), [BY_RANKS]) == RankingOptions(Fusion.RANKS, 1.0, expand=True)


def test_indexes_that_differ_say_nothing() -> None:
    """An option of several indexes holds only if all of them have the same value."""
    other = IndexSettings(fusion=Fusion.RANKS, dense_weight=0.75)
    assert resolve_options(asked(), [BY_RANKS, other]) == RankingOptions(Fusion.RANKS, DENSE_WEIGHT, expand=False)
    assert resolve_options(asked(), [BY_RANKS, BY_RANKS]) == resolve_options(asked(), [BY_RANKS])
    assert resolve_options(asked(), [BY_RANKS, NOTHING]) == resolve_options(asked(), [NOTHING])


@given(st.lists(settings, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_the_indexes_says_nothing(several: list[IndexSettings], random: object) -> None:
    """The order of the indexes does not change the options."""
    shuffled = list(several)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    assert resolve_options(asked(), several) == resolve_options(asked(), shuffled)


@given(settings)
def test_nothing_is_expanded_where_nothing_may_be(own: IndexSettings) -> None:
    """A search by vectors and a search that skips missing scores are never expanded."""
    for mode, skip in product(Mode, (False, True)):
        found = resolve_options(asked(mode=mode, skip_missing_scores=skip, expand=True), [own])
        assert found.expand == (mode is not Mode.VECTORS and not skip)
