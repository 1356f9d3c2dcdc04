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
    most = 0
    lock = threading.Lock()

    def watched(item: int) -> None:
        nonlocal most
        with lock:
            running.add(item)
            most = max(most, len(running))
        time.sleep(0.002)
        with lock:
            running.remove(item)

    await asyncio.gather(threads.map(watched, range(20)), threads.map(watched, range(100, 120)))
    assert most == 2
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
    begun: list[str] = []
    well_begun = threading.Event()

    def note(item: str) -> None:
        begun.append(item)
        if len(begun) == 5:
            well_begun.set()
        time.sleep(0.002)

    long = asyncio.create_task(threads.map(note, ["long"] * 500))
    assert await asyncio.to_thread(well_begun.wait, 30)
    asked_at = len(begun)
    await threads.map(note, ["short"])
    assert begun.index("short") - asked_at <= 4
    assert not long.done()
    await long
    await threads.aclose()


async def test_a_cancelled_call_starts_no_further_item() -> None:
    """A cancelled call begins no further item, and the next call can use the threads."""
    threads = FairThreadPool(2, name="test")
    begun: list[int] = []
    well_begun = threading.Event()

    def note(item: int) -> int:
        begun.append(item)
        if len(begun) == 4:
            well_begun.set()
        time.sleep(0.005)
        return item

    call = asyncio.create_task(threads.map(note, range(1000)))
    assert await asyncio.to_thread(well_begun.wait, 30)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    count = len(begun)
    assert await threads.map(lambda item: item, [7]) == [7]
    await asyncio.sleep(0.05)
    assert len(begun) <= count + 1
    await threads.aclose()


async def test_after_a_failure_no_further_item_starts() -> None:
    """The caller gets the function's own error, without a group of errors, and no further item begins."""
    threads = FairThreadPool(2, name="test")
    begun: list[int] = []

    def fails_at_three(item: int) -> None:
        begun.append(item)
        if item == 3:
            raise KeyError("three")

    with pytest.raises(KeyError, match="three"):
        await threads.map(fails_at_three, range(1000))
    assert len(begun) < 20
    assert await threads.map(abs, [-1]) == [1]
    await threads.aclose()


async def test_closing_waits_for_running_items() -> None:
    """Closing waits for running items. Calls with more items, and later calls, get an error."""
    threads = FairThreadPool(1, name="test")
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def wait(item: int) -> None:
        begun.set()
        go_on.wait(300)
        ended.set()

    call = asyncio.create_task(threads.map(wait, range(3)))
    assert await asyncio.to_thread(begun.wait, 30)
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
