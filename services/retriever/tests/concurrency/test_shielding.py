"""Shielded work runs to its end."""

import asyncio

import pytest
from retriever.concurrency.shielding import Shield


async def test_a_cancellation_waits_for_the_work() -> None:
    """A cancellation, even a second one, takes effect when the work has ended."""
    shield = Shield()
    go, done = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await go.wait()
        done.set()

    task = asyncio.create_task(shield.run(work()))
    for _ in range(2):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done.is_set()


async def test_results_and_errors_reach_the_caller() -> None:
    """The caller gets what the work returns or raises."""
    shield = Shield()
    assert await shield.run(asyncio.sleep(0, 7)) == 7

    async def fail() -> None:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        await shield.run(fail())


async def test_closing_waits_for_all_work() -> None:
    """No work runs after the shield is closed."""
    shield = Shield()
    ended = []

    async def work(seconds: float) -> None:
        await asyncio.sleep(seconds)
        ended.append(seconds)

    tasks = [asyncio.create_task(shield.run(work(seconds))) for seconds in (0.01, 0.02)]
    await asyncio.sleep(0)
    await shield.aclose()
    assert ended == [0.01, 0.02]
    await asyncio.gather(*tasks)
