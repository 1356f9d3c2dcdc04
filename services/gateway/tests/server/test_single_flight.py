"""Look-ups that concurrent callers share."""

import asyncio

import pytest
from causeway_testing.servers import eventually
from gateway.server.single_flight import SingleFlight


class Seen:
    """A look-up with a clock.

    Attributes:
        looks: The number of look-ups.
    """

    def __init__(self) -> None:
        self.looks, self.now, self.fails = 0, 100.0, False
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self) -> int:
        self.looks += 1
        seen = self.looks
        await self.gate.wait()
        if self.fails:
            raise ZeroDivisionError
        return seen


async def test_callers_share_a_fresh_look_up() -> None:
    """Callers share a look-up while it runs and as long as it is fresh. Afterwards it runs again."""
    seen = Seen()
    look = SingleFlight(seen, reuse_seconds=2.0, clock=lambda: seen.now)
    assert await asyncio.gather(*(look() for _ in range(50))) == [1] * 50
    seen.now += 1.9
    assert await look() == 1
    seen.now += 0.2
    assert await look() == 2


async def test_concurrent_callers_share_a_look_up_that_is_never_fresh() -> None:
    """Concurrent callers share a look-up whose result is never fresh."""
    seen = Seen()
    look = SingleFlight(seen, reuse_seconds=0.0, clock=lambda: seen.now)
    assert await asyncio.gather(*(look() for _ in range(50))) == [1] * 50
    assert await look() == 2


async def test_a_cancelled_caller_does_not_cancel_the_look_up() -> None:
    """A caller that is cancelled does not cancel the look-up of the others."""
    seen = Seen()
    seen.gate.clear()
    look = SingleFlight(seen)
    first, second = asyncio.create_task(look()), asyncio.create_task(look())
    await eventually(lambda: seen.looks == 1)
    first.cancel()
    await asyncio.wait([first])
    seen.gate.set()
    assert await second == 1


async def test_a_failed_look_up_is_not_kept() -> None:
    """A failed look-up is not kept."""
    seen = Seen()
    look = SingleFlight(seen)
    seen.fails = True
    with pytest.raises(ZeroDivisionError):
        await look()
    seen.fails = False
    assert await look() == 2
