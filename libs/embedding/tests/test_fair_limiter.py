import asyncio
import threading
import time

import pytest
from embedding.fair_limiter import FairThreadPool
from servicekit.errors import Unavailable


async def test_results_keep_the_order() -> None:
    """The results have the order of the items, in any order of execution."""
    threads = FairThreadPool(3, name="test")

    def slow_for_small(item: int) -> int:
        time.sleep((20 - item) / 4000)
        return item * item

    assert await threads.map(slow_for_small, range(20)) == [item * item for item in range(20)]
    await threads.aclose()


async def test_no_more_run_at_a_time_than_there_are_workers() -> None:
    """Two calls together use only two threads, and use both."""
    threads = FairThreadPool(2, name="test")
    running: set[int] = set()
    highest = 0
    lock = threading.Lock()

    def track(item: int) -> None:
        nonlocal highest
        with lock:
            running.add(item)
            highest = max(highest, len(running))
        time.sleep(0.002)
        with lock:
            running.remove(item)

    await asyncio.gather(threads.map(track, range(20)), threads.map(track, range(100, 120)))
    assert highest == 2
    await threads.aclose()


async def test_a_long_call_creates_few_tasks() -> None:
    """Ten thousand items create as many tasks as there are workers."""
    threads = FairThreadPool(2, name="test")
    go_on = threading.Event()
    before = len(asyncio.all_tasks())
    call = asyncio.create_task(threads.map(lambda item: go_on.wait(300), range(10_000)))
    await asyncio.sleep(0.05)
    assert len(asyncio.all_tasks()) - before <= 3
    go_on.set()
    assert len(await call) == 10_000
    await threads.aclose()


async def test_a_short_call_does_not_wait_for_a_long_one() -> None:
    """An item of a short call runs at most after the items of the long call that already run or wait."""
    threads = FairThreadPool(2, name="test")
    started: list[str] = []
    well_begun = threading.Event()

    def record(item: str) -> None:
        started.append(item)
        if len(started) == 5:
            well_begun.set()
        time.sleep(0.002)

    long = asyncio.create_task(threads.map(record, ["long"] * 500))
    assert await asyncio.to_thread(well_begun.wait, 30)
    queued_at = len(started)
    await threads.map(record, ["short"])
    assert started.index("short") - queued_at <= 4
    assert not long.done()
    await long
    await threads.aclose()


async def test_a_cancelled_call_starts_no_further_item() -> None:
    """A cancelled call begins no further item, and the next call can use the threads."""
    threads = FairThreadPool(2, name="test")
    started: list[int] = []
    well_begun = threading.Event()

    def record(item: int) -> int:
        started.append(item)
        if len(started) == 4:
            well_begun.set()
        time.sleep(0.005)
        return item

    call = asyncio.create_task(threads.map(record, range(1000)))
    assert await asyncio.to_thread(well_begun.wait, 30)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    count = len(started)
    assert await threads.map(lambda item: item, [7]) == [7]
    await asyncio.sleep(0.05)
    assert len(started) <= count + 1
    await threads.aclose()


async def test_after_a_failure_no_further_item_starts() -> None:
    """The caller gets the function's own error, without a group of errors, and no further item begins."""
    threads = FairThreadPool(2, name="test")
    started: list[int] = []

    def fails_at_three(item: int) -> None:
        started.append(item)
        if item == 3:
            raise KeyError("three")

    with pytest.raises(KeyError, match="three"):
        await threads.map(fails_at_three, range(1000))
    assert len(started) < 20
    assert await threads.map(abs, [-1]) == [1]
    await threads.aclose()


async def test_closing_waits_for_running_items() -> None:
    """Closing waits for running items. Calls with more items, and later calls, get an error."""
    threads = FairThreadPool(1, name="test")
    started, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def wait(item: int) -> None:
        started.set()
        go_on.wait(300)
        ended.set()

    call = asyncio.create_task(threads.map(wait, range(3)))
    assert await asyncio.to_thread(started.wait, 30)
    closing = asyncio.create_task(threads.aclose())
    await asyncio.sleep(0.01)
    assert not closing.done()
    go_on.set()
    await closing
    assert ended.is_set()
    with pytest.raises(Unavailable):
        await call
    with pytest.raises(Unavailable):
        await threads.map(wait, [1])
