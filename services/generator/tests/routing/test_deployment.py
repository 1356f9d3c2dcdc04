"""A deployment limits the requests to a model and reports their results to the circuit."""

import asyncio
from collections.abc import Callable

import pytest
from causeway_testing.generator import FakeModel, deployed
from generator.routing.circuit_breaker import State
from generator.routing.deployment import Deployment, is_fault
from generator.routing.route import UNBOUNDED
from servicekit.errors import (
    CausewayError,
    DeadlineExceeded,
    InvalidRequest,
    Unavailable,
    UpstreamRejected,
)


def rejected(status: int) -> UpstreamRejected:
    return UpstreamRejected("no", status=status, body="")


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (Unavailable("x"), True),
        (DeadlineExceeded("x"), True),
        (rejected(500), True),
        (rejected(503), True),
        (rejected(408), True),
        (rejected(429), False),
        (rejected(400), False),
        (rejected(404), False),
        (InvalidRequest("x"), False),
    ],
)
async def test_only_faults_of_the_server_open_the_circuit(error: CausewayError, fault: bool) -> None:
    """Errors of the caller and rate limits do not open the circuit."""
    assert is_fault(error) is fault
    deployment = deployed(FakeModel(), failures=1)
    with pytest.raises(type(error)):
        async with deployment.attempt(UNBOUNDED):
            raise error
    assert (deployment.circuit.state is State.OPEN) is fault
    assert deployment.admits is not fault


async def _cancel(deployment: Deployment) -> None:
    task = asyncio.current_task()
    assert task is not None
    async with deployment.attempt(UNBOUNDED):
        task.cancel()
        await asyncio.sleep(0)


async def _raise_defect(deployment: Deployment) -> None:
    async with deployment.attempt(UNBOUNDED):
        raise ValueError


@pytest.mark.parametrize("end", [_cancel, _raise_defect])
async def test_cancellations_and_defects_do_not_count(end: Callable[[Deployment], object]) -> None:
    """A cancelled request and a defect leave the circuit half-open for another test request."""
    deployment = deployed(FakeModel(), failures=1, seconds=0.001)
    deployment.circuit.call().failed()
    await asyncio.sleep(0.01)
    assert deployment.circuit.state is State.HALF_OPEN
    with pytest.raises((asyncio.CancelledError, ValueError)):
        await asyncio.create_task(end(deployment))  # type: ignore[arg-type]  # both are coroutines
    assert (deployment.slots.busy, deployment.circuit.state, deployment.admits) == (0, State.HALF_OPEN, True)


async def test_a_refusal_closes_the_circuit() -> None:
    """A test request that the server refuses closes the circuit, because the server responds."""
    deployment = deployed(FakeModel(), failures=1, seconds=0.001)
    deployment.circuit.call().failed()
    await asyncio.sleep(0.01)
    with pytest.raises(UpstreamRejected):
        async with deployment.attempt(UNBOUNDED):
            raise rejected(400)
    assert deployment.circuit.state is State.CLOSED


async def test_an_open_circuit_refuses_and_frees_the_slot() -> None:
    """An open circuit refuses a request, which keeps no slot."""
    deployment = deployed(FakeModel(), failures=1)
    deployment.circuit.call().failed()
    with pytest.raises(Unavailable):
        async with deployment.attempt(UNBOUNDED):
            raise AssertionError
    assert deployment.slots.busy == 0
