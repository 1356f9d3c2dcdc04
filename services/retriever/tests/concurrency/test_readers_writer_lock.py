"""The readers-writer lock admits many readers or one writer, in the order of arrival."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from retriever.concurrency.readers_writer_lock import ReadersWriterLock

SECONDS = 60.0  # never reached, because every holder releases the lock


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=12))
def test_one_writer_or_many_readers(tasks: list[tuple[bool, int, int]]) -> None:
    """While one task holds the lock alone, no other task holds it, for any order and duration."""

    async def run() -> None:
        lock = ReadersWriterLock()
        readers = writers = 0

        async def read(before: int, within: int) -> None:
            nonlocal readers
            for _ in range(before):
                await asyncio.sleep(0)
            async with lock.shared():
                readers += 1
                assert not writers
                for _ in range(within):
                    await asyncio.sleep(0)
                readers -= 1

        async def write(before: int, within: int) -> None:
            nonlocal writers
            for _ in range(before):
                await asyncio.sleep(0)
            async with lock.exclusive(SECONDS):
                writers += 1
                for _ in range(within + 1):
                    assert writers == 1
                    assert not readers
                    await asyncio.sleep(0)
                writers -= 1

        await asyncio.gather(*((write if writes else read)(*turns) for writes, *turns in tasks))

    asyncio.run(run())


async def test_a_second_writer_waits_for_the_first() -> None:
    """A second writer waits for the first one, and a reader waits for both."""
    lock, order = ReadersWriterLock(), []

    async def hold(name: str) -> None:
        async with lock.shared() if name == "reader" else lock.exclusive(SECONDS):
            order.append(f"{name} in")
            await asyncio.sleep(0)
            order.append(f"{name} out")

    await asyncio.gather(*map(hold, ("first", "second", "reader")))
    assert order == ["first in", "first out", "second in", "second out", "reader in", "reader out"]


async def test_readers_share_the_lock() -> None:
    """Readers hold the lock at the same time."""
    lock = ReadersWriterLock()
    async with lock.shared(), asyncio.timeout(SECONDS), lock.shared():
        pass


async def test_a_writer_times_out() -> None:
    """A writer that waits too long gets a TimeoutError. Later readers and writers are admitted."""
    lock = ReadersWriterLock()
    async with lock.shared():
        with pytest.raises(TimeoutError):
            async with lock.exclusive(0):
                pytest.fail("admitted beside a reader")
        async with lock.shared():
            pass
    async with lock.exclusive(SECONDS):
        pass


async def test_a_cancelled_writer_does_not_block_others() -> None:
    """A cancelled writer does not block later tasks."""
    lock = ReadersWriterLock()
    async with lock.shared():
        writer = asyncio.create_task(_hold(lock))
        await asyncio.sleep(0)
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
    async with lock.exclusive(SECONDS):
        pass


async def _hold(lock: ReadersWriterLock) -> None:
    async with lock.exclusive(SECONDS):
        pass
