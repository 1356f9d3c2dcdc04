"""A thread pool that several callers share fairly."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from servicekit.errors import Unavailable

T = TypeVar("T")
R = TypeVar("R")


class TurnTaker:
    """Runs a blocking function over items on a fixed number of threads, off the event loop.

    A call never has more items running or queued than there are threads, and the queue is first come, first served.
    So an item waits for at most that many items of each other call, however long those calls are. The object
    belongs to the event loop that first uses it.

    Args:
        workers: Number of threads, at least 1.
        name: Prefix of the threads' names.
    """

    def __init__(self, workers: int, name: str) -> None:
        self._workers = workers
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix=name)
        self._turns = asyncio.Semaphore(workers)  # first come, first served
        self._closed = False

    async def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return ``[function(item) for item in items]``.

        After a cancellation or a failure, no further item is started.

        Raises:
            Unavailable: The object is closed.
            Exception: The first exception of the function.
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
        """Wait for running items; no further item is started."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
