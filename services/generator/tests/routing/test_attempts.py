"""The order in which a request tries deployments."""

import random

import pytest
from causeway_testing.generator import FakeModel, deployed
from generator.routing.attempts import Attempts, Retries, Target, least_busy
from generator.routing.deployment import Deployment
from generator.routing.route import UNBOUNDED
from hypothesis import given
from hypothesis import strategies as st
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, DeadlineExceeded, InvalidRequest, RateLimited, Unavailable

RNG = random.Random(7)
DOWN = Unavailable("down")


def attempts(*deployments: Deployment, retries: Retries | None = None, deadline: Deadline = UNBOUNDED) -> Attempts:
    return Attempts(
        "public", [Target(deployment) for deployment in deployments], retries or Retries(maximum=0), deadline, RNG
    )


def three() -> list[Deployment]:
    return [deployed(FakeModel(name)) for name in "abc"]


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 20), st.integers(1, 3)), min_size=1, max_size=6))
def test_the_least_busy_deployment_of_the_lowest_tier_is_chosen(places: list[tuple[int, int, int]]) -> None:
    """The choice is a deployment of the lowest tier with the least load for its weight."""
    targets = []
    for weight, busy, tier in places:
        deployment = deployed(FakeModel())
        deployment.slots.busy = busy
        targets.append(Target(deployment, weight, tier))
    chosen = least_busy(targets, RNG)
    assert chosen is not None
    rivals = [rival for rival in targets if rival.tier == min(target.tier for target in targets)]
    assert chosen in rivals
    loads = [rival.deployment.slots.busy / rival.weight for rival in rivals]
    assert chosen.deployment.slots.busy / chosen.weight == min(loads)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_load_is_spread_by_weight(weights: list[int]) -> None:
    """If the number of answers is the sum of the weights, each deployment gets as many answers as its weight."""
    targets = [Target(deployed(FakeModel()), weight) for weight in weights]
    for _ in range(sum(weights)):
        chosen = least_busy(targets, RNG)
        assert chosen is not None
        chosen.deployment.slots.busy += 1
    assert [target.deployment.slots.busy for target in targets] == weights


def test_without_deployments_the_choice_is_none() -> None:
    """Without deployments the choice is None."""
    assert least_busy([], RNG) is None


def test_each_deployment_is_tried_once_and_then_again_within_the_limits() -> None:
    """Each deployment is tried once without a pause, and then again with growing pauses up to the limit."""
    tracker, seen, pauses = attempts(*three(), retries=Retries(maximum=3, within=60)), [], []
    for _ in range(6):
        deployment, pause = tracker.next()
        seen.append(deployment.name)
        pauses.append(pause)
        assert tracker.note_failure(deployment, DOWN, admitted=True)
    with pytest.raises(Unavailable):
        tracker.next()
    assert sorted(seen[:3]) == ["a", "b", "c"]
    assert pauses[:3] == [0, 0, 0]
    for number, pause in enumerate(pauses[3:]):
        assert 0.1 * 2**number <= pause <= 0.2 * 2**number


def test_a_full_deployment_is_not_tried_again() -> None:
    """A full deployment is not tried again. If all are full, the error has a retry time. A passed deadline ends the
    attempts.
    """
    first, second, third = three()
    tracker = attempts(first, second, third, retries=Retries(maximum=9))
    for deployment in (first, second, third):
        assert tracker.note_failure(deployment, RateLimited("full"), admitted=False)
    with pytest.raises(RateLimited, match="'public' is busy") as caught:
        tracker.next()
    assert caught.value.retry_after == 1
    assert not tracker.note_failure(first, DeadlineExceeded("late"), admitted=False)


def test_an_error_of_the_caller_ends_the_attempts() -> None:
    """An error of the caller ends the attempts."""
    first, second, _ = three()
    assert not attempts(first, second).note_failure(first, InvalidRequest("bad"), admitted=True)


def test_without_time_for_a_pause_the_last_error_is_raised() -> None:
    """If the pause would exceed the deadline, the last error is raised at once."""
    (only, *_) = three()
    tracker = attempts(only, retries=Retries(maximum=9), deadline=Deadline.after(0.05))
    deployment, _ = tracker.next()
    tracker.note_failure(deployment, DOWN, admitted=True)
    with pytest.raises(CausewayError) as caught:
        tracker.next()
    assert caught.value is DOWN
