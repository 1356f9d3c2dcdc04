"""The wall time of the steps of a search."""

import contextlib
import time

import pytest
from causeway_testing.clock import ManualClock
from retriever.search.step_timer import StepTimer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """Replace the clock of the timer."""
    clock = ManualClock(100.0)
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


def test_the_time_of_overlapping_parts_counts_once(clock: ManualClock) -> None:
    """A step takes the time from the start of its first part to the end of its last part, without pauses."""
    timer = StepTimer()
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    first.enter_context(timer.time("dense"))
    clock.now += 1
    second.enter_context(timer.time("dense"))
    clock.now += 2
    first.close()
    clock.now += 4  # the second part alone
    second.close()
    clock.now += 8  # no part
    with timer.time("dense"):
        clock.now += 16
    assert [(step.name, step.milliseconds) for step in timer.steps()] == [("dense", 23_000)]


def test_steps_are_in_the_order_of_their_first_start(clock: ManualClock) -> None:
    """The steps have the order of their first start, and each has its own time."""
    timer = StepTimer()
    with timer.time("embed"):
        clock.now += 1
    with timer.time("dense"), timer.time("sparse"):
        clock.now += 2
    with timer.time("embed"):
        clock.now += 4
    assert [(step.name, step.milliseconds) for step in timer.steps()] == [
        ("embed", 5000),
        ("dense", 2000),
        ("sparse", 2000),
    ]
