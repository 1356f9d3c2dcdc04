"""Slices of bulk work: one in each turn of the loop, and searches before them."""

import asyncio

from retriever.pace import Pace


async def test_one_slice_in_each_turn_of_the_loop() -> None:
    """However many work in slices, whoever else is ready runs between two slices."""
    pace = Pace()
    order: list[str] = []

    async def work() -> None:
        for _ in range(5):
            async with pace.slice():
                order.append("slice")

    async def other() -> None:
        while order.count("slice") < 20:
            order.append("other")
            await asyncio.sleep(0)

    await asyncio.gather(other(), *(work() for _ in range(4)))
    assert order.count("slice") == 20
    assert "slice slice" not in " ".join(order)


async def test_searches_go_before_slices() -> None:
    """A slice waits for the searches under way."""
    pace = Pace()
    order: list[str] = []

    async def work() -> None:
        async with pace.slice():
            order.append("slice")

    with pace.search():
        with pace.search():
            task = asyncio.create_task(work())
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        order.append("search")
    await task
    assert order == ["search", "slice"]


async def test_searches_without_end_do_not_stop_bulk_work() -> None:
    """A slice waits for a moment only."""
    pace = Pace()
    with pace.search():
        for _ in range(3):
            async with asyncio.timeout(5), pace.slice():
                pass
