"""The circuit breaker."""

from typing import Any

import pytest
from causeway_testing.clock import ManualClock
from generator.routing.circuit_breaker import CircuitBreaker, State
from hypothesis import given
from hypothesis import strategies as st
from servicekit.errors import Unavailable
from structlog.testing import capture_logs


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


@pytest.fixture
def circuit(clock: ManualClock) -> CircuitBreaker:
    return CircuitBreaker("a/b", failures=3, seconds=10, clock=clock)


def fail(circuit: CircuitBreaker, times: int = 1) -> None:
    for _ in range(times):
        circuit.call().failed()


def test_the_circuit_opens_after_consecutive_failures(circuit: CircuitBreaker) -> None:
    """The circuit opens after consecutive failures. A complete answer resets the count. An open circuit refuses
    calls and reports when the next one may begin.
    """
    fail(circuit, 2)
    circuit.call().completed()
    fail(circuit, 2)
    assert circuit.state is State.CLOSED
    fail(circuit)
    assert (circuit.state, circuit.admits, circuit.retry_after) == (State.OPEN, False, 10)
    with pytest.raises(Unavailable) as caught:
        circuit.call()
    assert caught.value.retry_after == 10


def test_all_attempts_of_one_request_count_as_one_failure(circuit: CircuitBreaker) -> None:
    """All attempts of one request count as one failure."""
    for _ in range(9):
        circuit.call("one").failed()
    circuit.call("two").failed()
    assert circuit.admits
    circuit.call("three").failed()
    assert circuit.state is State.OPEN


def test_an_incomplete_answer_counts_as_a_failure(circuit: CircuitBreaker) -> None:
    """An answer that ends early counts as a failure."""
    for _ in range(3):
        call = circuit.call()
        call.responded()
        call.failed()
    assert circuit.state is State.OPEN


def test_after_the_pause_one_test_request_passes(circuit: CircuitBreaker, clock: ManualClock) -> None:
    """After the pause the circuit admits one request. The start of its answer closes the circuit."""
    fail(circuit, 3)
    clock.now += 9.9
    assert circuit.state is State.OPEN
    clock.now += 0.1
    assert (circuit.state, circuit.admits) == (State.HALF_OPEN, True)
    probe = circuit.call()
    assert not circuit.admits
    with pytest.raises(Unavailable):
        circuit.call()
    probe.responded()
    assert (circuit.state, circuit.admits) == (State.CLOSED, True)


def test_a_failed_test_request_opens_the_circuit_again(circuit: CircuitBreaker, clock: ManualClock) -> None:
    """A failed test request opens the circuit for the full time again."""
    fail(circuit, 3)
    clock.now += 10
    fail(circuit)
    assert (circuit.state, circuit.retry_after) == (State.OPEN, 10)


def test_after_a_test_request_one_failure_opens_the_circuit_again(
    circuit: CircuitBreaker, clock: ManualClock
) -> None:
    """After a test request, one failure opens the circuit again until an answer is complete."""
    fail(circuit, 3)
    clock.now += 10
    probe = circuit.call()
    probe.responded()
    fail(circuit)
    assert circuit.state is State.OPEN
    clock.now += 10
    circuit.call().completed()
    fail(circuit, 2)
    assert circuit.admits


def test_after_an_abandoned_test_request_another_one_passes(circuit: CircuitBreaker, clock: ManualClock) -> None:
    """If the caller abandons the test request, the circuit stays half-open for the next request."""
    fail(circuit, 3)
    clock.now += 10
    circuit.call().abandoned()
    assert (circuit.state, circuit.admits) == (State.HALF_OPEN, True)


def test_earlier_calls_do_not_change_an_open_circuit(circuit: CircuitBreaker, clock: ManualClock) -> None:
    """The results of calls that began before the circuit opened do not change it."""
    before = [circuit.call() for _ in range(6)]
    for call in before[:3]:
        call.failed()
    clock.now += 5
    before[3].failed()
    before[4].completed()
    assert (circuit.state, circuit.retry_after) == (State.OPEN, 5)
    clock.now += 5
    circuit.call()
    before[5].abandoned()
    assert not circuit.admits


def test_opening_and_closing_are_logged_once(circuit: CircuitBreaker, clock: ManualClock) -> None:
    """The circuit logs once that it opens and closes, with the deployment's name."""
    with capture_logs() as log:
        fail(circuit, 3)
        clock.now += 10
        fail(circuit)
        clock.now += 10
        circuit.call().completed()
    lines: list[Any] = [(entry["event"], entry["deployment"]) for entry in log]
    assert lines == [("circuit opened", "a/b"), ("circuit closed", "a/b")]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["begin", "responded", "completed", "failed", "abandoned", "wait"]), st.integers(0, 9)
        )
    )
)
def test_the_circuit_admits_a_request_after_any_calls(steps: list[tuple[str, int]]) -> None:
    """After any calls in any order and the full time, the circuit admits the next request, whose complete answer
    closes it.
    """
    clock = ManualClock(100.0)
    circuit = CircuitBreaker("a", failures=2, seconds=10, clock=clock)
    running = []
    for step, number in steps:
        if step == "begin" and circuit.admits:
            running.append(circuit.call())
        elif step == "wait":
            clock.now += number
        elif step == "responded" and running:
            running[number % len(running)].responded()
        elif step in ("completed", "failed", "abandoned") and running:
            getattr(running.pop(number % len(running)), step)()
    for call in running:
        call.abandoned()
    clock.now += 10
    assert circuit.admits
    circuit.call().completed()
    assert circuit.state is State.CLOSED
