"""The ranking options come from the query, otherwise from its indexes, otherwise from the defaults."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from retriever.domain.index import Fusion, IndexSettings
from retriever.domain.query import Mode, Query
from retriever.search.ranking_options import DEFAULT_DENSE_WEIGHT, RankingOptions, resolve_options

NOTHING = IndexSettings()
BY_RANKS = IndexSettings(fusion=Fusion.RANKS, dense_weight=0.25, expand=True)

settings = st.builds(
    IndexSettings,
    fusion=st.none() | st.sampled_from(Fusion),
    dense_weight=st.none() | st.floats(0, 1),
    expand=st.none() | st.booleans(),
)


def query(**options: object) -> Query:
    return Query(("a", "b"), "ferry", **options)  # type: ignore[arg-type]  # the tests name fields of the query


def test_the_default_is_fusion_by_scores() -> None:
    """By default, scores are fused with equal weights, and only a hybrid fusion of scores expands."""
    assert resolve_options(query(), [NOTHING]) == RankingOptions(Fusion.SCORES, 0.5, expand=True)
    assert not resolve_options(query(mode=Mode.TEXT), [NOTHING]).expand
    assert not resolve_options(query(fusion=Fusion.RANKS), [NOTHING]).expand


def test_an_index_sets_options_that_the_query_does_not_set() -> None:
    """An index sets each option that the query does not set."""
    assert resolve_options(query(), [BY_RANKS]) == RankingOptions(Fusion.RANKS, 0.25, expand=True)
    with_options = query(fusion=Fusion.SCORES, dense_weight=0.0, expand=False)
    assert resolve_options(with_options, [BY_RANKS]) == RankingOptions(Fusion.SCORES, 0.0, expand=False)
    assert resolve_options(query(dense_weight=1.0), [BY_RANKS]) == RankingOptions(Fusion.RANKS, 1.0, expand=True)


def test_settings_that_differ_between_indexes_are_ignored() -> None:
    """A setting of several indexes applies only if all of them have the same value."""
    other = IndexSettings(fusion=Fusion.RANKS, dense_weight=0.75)
    assert resolve_options(query(), [BY_RANKS, other]) == RankingOptions(
        Fusion.RANKS, DEFAULT_DENSE_WEIGHT, expand=False
    )
    assert resolve_options(query(), [BY_RANKS, BY_RANKS]) == resolve_options(query(), [BY_RANKS])
    assert resolve_options(query(), [BY_RANKS, NOTHING]) == resolve_options(query(), [NOTHING])


@given(st.lists(settings, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_the_indexes_does_not_matter(several: list[IndexSettings], random: object) -> None:
    """The order of the indexes does not change the options."""
    shuffled = list(several)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis gives a random.Random
    assert resolve_options(query(), several) == resolve_options(query(), shuffled)


@given(settings)
def test_searches_that_are_never_expanded(own: IndexSettings) -> None:
    """A search by vectors and a search that skips missing scores are never expanded."""
    for mode, skip in product(Mode, (False, True)):
        found = resolve_options(query(mode=mode, skip_missing_scores=skip, expand=True), [own])
        assert found.expand == (mode is not Mode.VECTORS and not skip)
