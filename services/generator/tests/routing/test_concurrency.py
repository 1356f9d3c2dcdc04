"""The limit of concurrent requests, and its queue."""

import asyncio
import contextlib
import random

import pytest
from causeway_testing.servers import eventually
from generator.routing.concurrency import ConcurrencyLimiter
from hypothesis import given, settings
from hypothesis import strategies as st
from servicekit.deadline import Deadline
from servicekit.errors import DeadlineExceeded, RateLimited

LONG = Deadline.after(3600)


async def hold(slots: ConcurrencyLimiter, seconds: float = 3600, deadline: Deadline = LONG) -> None:
    async with slots.acquire(deadline):
        await asyncio.sleep(seconds)


@contextlib.asynccontextmanager
async def holding_slots(slots: ConcurrencyLimiter, count: int):  # type: ignore[no-untyped-def]  # a context manager of tasks
    tasks = [asyncio.create_task(hold(slots)) for _ in range(count)]
    await asyncio.sleep(0)
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_a_request_above_the_limit_and_the_queue_is_refused() -> None:
    """A request above the limit and the queue is refused at once with a retry time."""
    slots = ConcurrencyLimiter(2, 3)
    async with holding_slots(slots, 5):
        assert (slots.busy, slots.waiting, slots.full) == (2, 3, True)
        with pytest.raises(RateLimited) as caught:
            await hold(slots)
        assert caught.value.retry_after is not None
        assert caught.value.retry_after >= 1
    assert (slots.busy, slots.waiting, slots.free) == (0, 0, True)


async def test_the_queue_is_in_order_of_arrival() -> None:
    """Waiting requests get slots in the order of their arrival."""
    slots, order = ConcurrencyLimiter(1, 10), []

    async def note(number: int) -> None:
        async with slots.acquire(LONG):
            order.append(number)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(note(number))
    assert order == list(range(8))


async def test_a_cancelled_request_leaves_the_queue() -> None:
    """A cancelled request frees its place in the queue."""
    slots = ConcurrencyLimiter(1, 1)
    async with holding_slots(slots, 2) as (first, second):
        second.cancel()
        await eventually(lambda: slots.waiting == 0)
        third = asyncio.create_task(hold(slots, 0))
        await asyncio.sleep(0)
        assert slots.waiting == 1
        first.cancel()
        await asyncio.wait_for(third, 60)


async def test_a_deadline_ends_the_wait() -> None:
    """A deadline ends the wait in the queue."""
    slots = ConcurrencyLimiter(1, 1)
    async with holding_slots(slots, 1):
        with pytest.raises(DeadlineExceeded):
            await hold(slots, deadline=Deadline.after(0.05))
        assert slots.waiting == 0


async def test_a_request_whose_wait_would_exceed_its_deadline_is_refused() -> None:
    """A request is refused at once, with the expected wait as the retry time, if this wait exceeds its deadline."""
    now = 0.0
    slots = ConcurrencyLimiter(1, 10, clock=lambda: now)
    async with slots.acquire(LONG):
        now += 10.0
    async with holding_slots(slots, 1):
        with pytest.raises(RateLimited) as caught:
            await hold(slots, deadline=Deadline.after(1))
        assert caught.value.retry_after == 10


@settings(max_examples=30)
@given(st.integers(0, 1_000_000), st.integers(1, 4), st.integers(0, 6))
def test_no_slot_is_lost(seed: int, slot_count: int, queue: int) -> None:
    """The limits hold while requests run, fail, expire and are cancelled. At the end all slots are free."""
    rng = random.Random(seed)

    async def use_a_slot(slots: ConcurrencyLimiter) -> None:
        with contextlib.suppress(RateLimited, DeadlineExceeded, ValueError):
            async with slots.acquire(Deadline.after(rng.choice([0.001, 5]))):
                assert slots.busy <= slot_count
                assert slots.waiting <= queue
                await asyncio.sleep(rng.choice([0, 0.0005, 0.001]))
                if rng.random() < 0.2:
                    raise ValueError

    async def run() -> None:
        slots = ConcurrencyLimiter(slot_count, queue)
        tasks = []
        for _ in range(60):
            tasks.append(asyncio.create_task(use_a_slot(slots)))
            if rng.random() < 0.5:
                await asyncio.sleep(rng.choice([0, 0, 0.0005]))
            if rng.random() < 0.4:
                rng.choice(tasks).cancel()
        await asyncio.wait(tasks)
        assert not [task for task in tasks if not task.cancelled() and task.exception()]
        assert (slots.busy, slots.waiting) == (0, 0)
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(slot_count):
                assert slots.free
                await stack.enter_async_context(slots.acquire(LONG))
            assert not slots.free

    asyncio.run(run())
