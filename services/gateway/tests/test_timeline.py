import time

import pytest
from gateway.timeline import Timeline


def test_steps_are_timed_in_the_order_in_which_they_end() -> None:
    """Durations in milliseconds, of steps that fail, too."""
    timeline = Timeline()
    with timeline.step("outer"):
        with timeline.step("inner"):
            time.sleep(0.01)
        with pytest.raises(ValueError, match="x"), timeline.step("failed"):
            raise ValueError("x")
    assert [step.name for step in timeline.steps] == ["inner", "failed", "outer"]
    inner, _, outer = timeline.steps
    assert 10 <= inner.duration_ms <= outer.duration_ms < 5000


def test_what_is_done_twice_is_one_step() -> None:
    """A second search after a redaction: one step, with the time of both."""
    timeline = Timeline()
    timeline.add("retrieve", 0.001)
    timeline.add("retrieve", 0.0025)
    assert [(step.name, step.duration_ms) for step in timeline.steps] == [("retrieve", 3.5)]
