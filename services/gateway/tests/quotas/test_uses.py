import pytest
from gateway.quotas.uses import DAY, MINUTE, NO_EXPIRY, Uses, Window, seconds_until
from hypothesis import given
from hypothesis import strategies as st

BEGIN = 1_700_000_000.0
moments = st.lists(st.floats(0, 180), max_size=60).map(sorted)


@given(moments, st.floats(0, 60))
def test_the_sum_is_that_of_the_window(at: list[float], later: float) -> None:
    """All usage of the last minute counts. Usage that is older by more than a slot does not count."""
    uses = Uses(MINUTE)
    for moment in at:
        uses.add(1, BEGIN + moment)
    now = BEGIN + (at[-1] if at else 0) + later
    young = sum(1 for moment in at if BEGIN + moment > now - 60 + MINUTE.width)
    not_old = sum(1 for moment in at if BEGIN + moment >= now - 60 - MINUTE.width)
    assert young <= uses.total(now) <= not_old


@given(st.lists(st.tuples(st.floats(0, 200), st.integers(-3, 5), st.booleans()), max_size=60))
def test_the_cached_sum_is_right(steps: list[tuple[float, int, bool]]) -> None:
    """The cached sum equals a newly computed one, even after the clock was changed."""
    uses = Uses(MINUTE)
    for moment, amount, prunes in steps:
        uses.add(amount, BEGIN + moment)
        if prunes:
            uses.prune(BEGIN + moment)
        assert uses.total(BEGIN + moment) == pytest.approx(Uses(MINUTE, uses.slots).total(BEGIN + moment))


@given(moments, st.integers(1, 40))
def test_a_limit_that_is_checked_each_time_is_kept(at: list[float], limit: int) -> None:
    """No minute has more than the limit, except for the slot at its end."""
    uses, admitted = Uses(MINUTE), []
    for moment in at:
        if uses.total(BEGIN + moment) + 1 <= limit:
            uses.add(1, BEGIN + moment)
            admitted.append(moment)
    for moment in admitted:
        assert sum(1 for other in admitted if moment - 60 + MINUTE.width < other <= moment) <= limit


@given(moments.filter(bool), st.data())
def test_after_the_wait_there_is_room(at: list[float], data: st.DataObject) -> None:
    """After the wait, the amount has left the window. A moment before, it has not."""
    uses = Uses(MINUTE)
    for moment in at:
        uses.add(1, BEGIN + moment)
    now = BEGIN + at[-1]
    total = uses.total(now)
    excess = data.draw(st.floats(0.1, max(0.1, total)))
    wait = seconds_until([uses], MINUTE, min(excess, total), now)
    assert 0 <= wait <= 60 + MINUTE.width
    assert uses.total(now + wait + 0.01) <= total - min(excess, total) + 0.01
    if wait > 0.1:
        assert uses.total(now + wait - 0.1) > total - min(excess, total)


def test_usage_far_in_the_future_is_ignored() -> None:
    """A clock that is slightly ahead is accepted; usage further ahead blocks no caller and is removed."""
    uses = Uses(MINUTE)
    uses.add(5, BEGIN + 3600)
    uses.add(2, BEGIN + 20)
    assert uses.total(BEGIN) == 2
    assert seconds_until([uses], MINUTE, 1, BEGIN) < 120
    uses.prune(BEGIN)
    assert sum(uses.slots.values()) == 2
    assert uses.total(BEGIN + 3600) == 0


def test_usage_leaves_the_window_gradually() -> None:
    """A slot that leaves the window counts by its remaining share."""
    uses = Uses(Window(60, 6))
    uses.add(10, 1005)  # slot 100 ends at 1010
    assert uses.total(1059) == 10
    assert uses.total(1065) == pytest.approx(5)
    assert uses.total(1071) == 0
    uses.prune(1071)
    assert uses.slots == {}


def test_expected_usage_is_corrected() -> None:
    """An expected amount is removed at the time when it was counted. Later usage stays."""
    uses = Uses(MINUTE)
    uses.add(256, BEGIN)
    uses.add(-256, BEGIN)
    uses.add(12, BEGIN + 30)
    assert uses.total(BEGIN + 30) == 12


def test_running_requests_count_until_they_end() -> None:
    """A running request counts for any duration. The time to wait is unknown."""
    uses = Uses(NO_EXPIRY)
    uses.add(1, BEGIN)
    assert uses.total(BEGIN + 86_400 * 7) == 1
    assert seconds_until([uses], NO_EXPIRY, 1, BEGIN) == 1
    uses.add(-1, BEGIN + 5)
    assert uses.total(BEGIN + 5) == 0


def test_the_wait_is_at_most_the_window() -> None:
    """For an amount above the usage, the time to wait is the whole window."""
    uses = Uses(DAY)
    uses.add(5, BEGIN)
    assert seconds_until([uses], DAY, 50, BEGIN) == 86_400
    assert seconds_until([uses], DAY, 0, BEGIN) == 0
