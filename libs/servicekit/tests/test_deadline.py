import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servicekit.deadline import Deadline
from servicekit.errors import DeadlineExceeded


@given(st.floats(1, 1e9), st.floats(0.001, 1e9))
def test_a_timeout_is_at_most_both_limits(seconds: float, max_seconds: float) -> None:
    """A call gets the rest of the request's time, and at most its own limit."""
    timeout = Deadline.after(seconds).timeout(max_seconds)
    assert timeout is not None
    assert 0 < timeout <= min(seconds, max_seconds) * (1 + 1e-9)


def test_the_remaining_time_decreases() -> None:
    """A later call of `remaining` never returns more time."""
    deadline = Deadline.after(5)
    before = deadline.remaining()
    time.sleep(0.002)
    assert deadline.remaining() <= before - 0.002


@pytest.mark.parametrize("seconds", [0, -1, -math.inf])
def test_a_passed_deadline_is_an_error(seconds: float) -> None:
    """No call begins without time: a time-out of zero does not exist."""
    with pytest.raises(DeadlineExceeded):
        Deadline.after(seconds).remaining()
    with pytest.raises(DeadlineExceeded):
        Deadline.after(seconds).timeout(10)


def test_an_infinite_deadline_has_no_timeout() -> None:
    """Without a limit the time-out is None, as gRPC and asyncio expect. The call's own limit still applies."""
    assert Deadline(math.inf).timeout() is None
    assert Deadline(math.inf).timeout(3) == 3
