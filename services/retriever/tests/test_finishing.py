"""Work that has begun is done to its end."""

import asyncio

import pytest
from retriever.finishing import Finisher


async def test_a_cancellation_waits_for_the_work() -> None:
    """Who is cancelled meanwhile, even twice, is so only when the work has ended."""
    finisher = Finisher()
    go, done = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await go.wait()
        done.set()

    task = asyncio.create_task(finisher.finish(work()))
    for _ in range(2):
        await asyncio.sleep(0)
        task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done.is_set()


async def test_results_and_errors_come_through() -> None:
    """The caller gets what the work returns or raises."""
    finisher = Finisher()
    assert await finisher.finish(asyncio.sleep(0, 7)) == 7

    async def fail() -> None:
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        await finisher.finish(fail())


async def test_closing_waits_for_all_work() -> None:
    """After closing nothing that has begun is still running."""
    finisher = Finisher()
    ended = []

    async def work(seconds: float) -> None:
        await asyncio.sleep(seconds)
        ended.append(seconds)

    tasks = [asyncio.create_task(finisher.finish(work(seconds))) for seconds in (0.01, 0.02)]
    await asyncio.sleep(0)
    await finisher.aclose()
    assert ended == [0.01, 0.02]
    await asyncio.gather(*tasks)
