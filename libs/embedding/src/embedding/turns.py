"""Turns that several callers share fairly."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from servicekit.errors import Unavailable

T = TypeVar("T")
R = TypeVar("R")


class Turns:
    """Applies an asynchronous function to items, a fixed number of them at a time.

    A call never has more items running or queued than there are turns, and the queue is first come, first served.
    So an item waits for at most that many items of each other call, however long those calls are. The object
    belongs to the event loop that first uses it.

    Args:
        count: Number of turns, at least 1.
        closed: The error message after `aclose`.
    """

    def __init__(self, count: int, closed: str) -> None:
        self._count = count
        self._free = asyncio.Semaphore(count)  # first come, first served
        self._message = closed
        self._closed = False

    async def map(self, function: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
        """Return the function's results in the order of the items.

        After a cancellation or a failure, no further item is started.

        Raises:
            Unavailable: The object is closed.
            Exception: The first exception of the function.
        """
        self._check_open()
        results: dict[int, R] = {}
        numbered = iter(enumerate(items))

        async def lane() -> None:
            for number, item in numbered:
                async with self._free:
                    self._check_open()
                    results[number] = await function(item)

        try:
            async with asyncio.TaskGroup() as lanes:
                for _ in range(min(self._count, len(items))):
                    lanes.create_task(lane())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures.exceptions[0].__cause__
        return [results[number] for number in range(len(items))]

    async def aclose(self) -> None:
        """Wait for running items; no further item is started."""
        self._closed = True
        for _ in range(self._count):
            await self._free.acquire()
        for _ in range(self._count):
            self._free.release()  # waiting calls then find the object closed

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable(self._message)


class TurnTaker:
    """Runs a blocking function over items on a fixed number of threads, off the event loop; see `Turns`.

    Args:
        workers: Number of threads, at least 1.
        name: Prefix of the threads' names.
    """

    def __init__(self, workers: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix=name)
        self._turns = Turns(workers, "The embedding model is shut down.")

    async def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return ``[function(item) for item in items]``; see `Turns.map`."""
        loop = asyncio.get_running_loop()
        return await self._turns.map(lambda item: loop.run_in_executor(self._threads, function, item), items)

    async def aclose(self) -> None:
        """Wait for running items, also those of cancelled calls; no further item is started."""
        await self._turns.aclose()
        await asyncio.to_thread(self._threads.shutdown)
