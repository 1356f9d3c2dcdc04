"""Turns of uploads."""

import asyncio

import pytest
from gateway.routes.uploads import Turns
from servicekit.deadline import Deadline
from servicekit.errors import RateLimited


async def test_who_leaves_as_the_turn_comes_does_not_take_it() -> None:
    """The upload ends there, and the turn is the next one's."""
    turns, begun = Turns(1), False

    async def upload() -> None:
        nonlocal begun
        async with turns.turn(Deadline.after(10)):
            begun = True

    async with turns.turn(Deadline.after(10)):
        waiting = asyncio.create_task(upload())
        await asyncio.sleep(0.01)
    # The turn has been handed on, and whoever waits has not run since.
    waiting.cancel()
    await asyncio.wait([waiting])
    assert (waiting.cancelled(), begun) == (True, False)
    async with turns.turn(Deadline.after(1)):
        pass


async def test_a_turn_that_does_not_come_in_time() -> None:
    """429 with the time to come again."""
    turns = Turns(1)
    async with turns.turn(Deadline.after(10)):
        with pytest.raises(RateLimited) as refused:
            async with turns.turn(Deadline.after(0.02)):
                pass
    assert refused.value.retry_after == 5
