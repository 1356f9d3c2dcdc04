"""detection.moderation.thread_pool: threads for long work."""

import asyncio
import threading

import pytest
from detection.moderation.thread_pool import ThreadPool


async def test_short_work_runs_on_the_thread_of_the_event_loop() -> None:
    """Short work runs at once on the event loop's thread. Other work runs on another thread."""
    workers = ThreadPool(1)
    here = threading.get_ident()
    assert await workers.run(True, threading.get_ident) == here
    assert await workers.run(False, threading.get_ident) != here
    workers.close()


async def test_the_event_loop_continues_while_a_thread_works() -> None:
    """The event loop serves other tasks while a thread works. Results and errors reach the caller."""
    workers = ThreadPool(1)
    release = threading.Event()
    waiting = asyncio.create_task(workers.run(False, release.wait, 10))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    release.set()
    assert await waiting
    with pytest.raises(ZeroDivisionError):
        await workers.run(False, divmod, 1, 0)
    workers.close()
