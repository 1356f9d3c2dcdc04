"""Calls that concurrent callers share."""

import asyncio

import pytest
from causeway_testing.servers import eventually
from gateway.server.single_flight import SingleFlight


class CountedCall:
    """A call that can wait and fail, with a clock.

    Attributes:
        count: The number of calls.
        now: The time of the clock.
        fails: Whether calls raise an error.
    """

    def __init__(self) -> None:
        self.count, self.now, self.fails = 0, 100.0, False
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self) -> int:
        self.count += 1
        number = self.count
        await self.gate.wait()
        if self.fails:
            raise ZeroDivisionError
        return number


async def test_callers_share_a_recent_result() -> None:
    """Callers share a call while it runs, and its result for the reuse time. After that, the call runs again."""
    call = CountedCall()
    shared = SingleFlight(call, reuse_seconds=2.0, clock=lambda: call.now)
    assert await asyncio.gather(*(shared() for _ in range(50))) == [1] * 50
    call.now += 1.9
    assert await shared() == 1
    call.now += 0.2
    assert await shared() == 2


async def test_concurrent_callers_share_a_call_without_reuse() -> None:
    """Concurrent callers share a call even if its result is not reused."""
    call = CountedCall()
    shared = SingleFlight(call, reuse_seconds=0.0, clock=lambda: call.now)
    assert await asyncio.gather(*(shared() for _ in range(50))) == [1] * 50
    assert await shared() == 2


async def test_a_cancelled_caller_does_not_cancel_the_call() -> None:
    """A cancelled caller does not cancel the call of the other callers."""
    call = CountedCall()
    call.gate.clear()
    shared = SingleFlight(call)
    first, second = asyncio.create_task(shared()), asyncio.create_task(shared())
    await eventually(lambda: call.count == 1)
    first.cancel()
    await asyncio.wait([first])
    call.gate.set()
    assert await second == 1


async def test_a_failed_call_is_repeated() -> None:
    """After a failed call, the next caller repeats the call."""
    call = CountedCall()
    shared = SingleFlight(call)
    call.fails = True
    with pytest.raises(ZeroDivisionError):
        await shared()
    call.fails = False
    assert await shared() == 2
