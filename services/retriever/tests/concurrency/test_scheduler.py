"""The scheduler runs one slice of bulk work in each iteration of the event loop, after the searches."""

import asyncio

from retriever.concurrency.scheduler import Scheduler


async def test_one_slice_in_each_iteration_of_the_loop() -> None:
    """Other ready tasks run between two slices, however many tasks work in slices."""
    scheduler = Scheduler()
    order: list[str] = []

    async def work() -> None:
        for _ in range(5):
            async with scheduler.slice():
                order.append("slice")

    async def other() -> None:
        while order.count("slice") < 20:
            order.append("other")
            await asyncio.sleep(0)

    await asyncio.gather(other(), *(work() for _ in range(4)))
    assert order.count("slice") == 20
    assert "slice slice" not in " ".join(order)


async def test_slices_wait_for_searches() -> None:
    """A slice waits for the running searches."""
    scheduler = Scheduler()
    order: list[str] = []

    async def work() -> None:
        async with scheduler.slice():
            order.append("slice")

    with scheduler.search():
        with scheduler.search():
            task = asyncio.create_task(work())
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        order.append("search")
    await task
    assert order == ["search", "slice"]


async def test_constant_searches_do_not_stop_bulk_work() -> None:
    """A slice waits only briefly if searches never end."""
    scheduler = Scheduler()
    with scheduler.search():
        for _ in range(3):
            async with asyncio.timeout(60), scheduler.slice():
                pass
