"""The cache of token counts."""

from gateway.clients.text_counts import TextCounts
from hypothesis import given
from hypothesis import strategies as st

ENTRIES = st.dictionaries(st.tuples(st.sampled_from("ab"), st.text(max_size=3)), st.integers(0, 9))


@given(ENTRIES)
def test_a_cached_count_is_found(entries: dict[tuple[str, str], int]) -> None:
    """A count is found only with its counting method and its text."""
    counts = TextCounts()
    for (counting, text), count in entries.items():
        counts.put(counting, [text], [count])
    for (counting, text), count in entries.items():
        assert counts.known(counting, [text, "\ud800"]) == [count, None]
        assert counts.known("c", [text]) == [None]


def test_the_least_recently_used_counts_are_dropped() -> None:
    """Above the limit, the least recently used counts are dropped."""
    counts = TextCounts(limit=2)
    counts.put("a", ["x", "y"], [1, 2])
    counts.known("a", ["x"])
    counts.put("a", ["z"], [3])
    assert counts.known("a", ["x", "y", "z"]) == [1, None, 3]
