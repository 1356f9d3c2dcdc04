"""Threads that several callers share by turns."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from servicekit.errors import Unavailable

T = TypeVar("T")
R = TypeVar("R")


class TurnTaker:
    """Runs a blocking function over items on a fixed number of threads, off the event loop.

    A call never has more items in flight or in line than there are threads, and the line is first come, first
    served; so an item waits for at most that many items of each other call, however long those calls are. It
    belongs to the event loop that it is first used in.

    Args:
        workers: Number of threads, at least 1.
        name: Prefix of the threads' names.
    """

    def __init__(self, workers: int, name: str) -> None:
        self._workers = workers
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix=name)
        self._turns = asyncio.Semaphore(workers)  # wakes its waiters in the order in which they came
        self._closed = False

    async def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """``[function(item) for item in items]``.

        When it is cancelled, or an item fails, the items that have not begun never do.

        Raises:
            Unavailable: It is closed.
            Exception: Whatever the function raised first.
        """
        if self._closed:
            raise Unavailable("The embedding model is shut down.")
        results: dict[int, R] = {}
        numbered = iter(enumerate(items))
        loop = asyncio.get_running_loop()

        async def lane() -> None:
            for number, item in numbered:
                async with self._turns:
                    if self._closed:
                        raise Unavailable("The embedding model is shut down.")
                    results[number] = await loop.run_in_executor(self._threads, function, item)

        try:
            async with asyncio.TaskGroup() as lanes:
                for _ in range(min(self._workers, len(items))):
                    lanes.create_task(lane())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures.exceptions[0].__cause__
        return [results[number] for number in range(len(items))]

    async def aclose(self) -> None:
        """Waits for the items that are being worked on; no other begins."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
