"""Limited concurrency that several callers share fairly."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from servicekit.errors import Unavailable

T = TypeVar("T")
R = TypeVar("R")


class FairLimiter:
    """Applies an asynchronous function to items, with limited concurrency.

    The running and queued items of one call never exceed the limit, and the queue is first in, first out. An item
    therefore waits for at most this number of items of each other call. All calls must run in the event loop of the
    first call.

    Args:
        limit: The maximum number of concurrent items, at least 1.
        closed_message: The error message after `aclose`.
    """

    def __init__(self, limit: int, closed_message: str) -> None:
        self._limit = limit
        self._free = asyncio.Semaphore(limit)  # a fair queue
        self._closed_message = closed_message
        self._closed = False

    async def map(self, function: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
        """Return the function's results in the order of the items.

        After a cancellation or a failure of this call, none of its further items starts. Other calls continue.

        Raises:
            Unavailable: The object is closed.
            Exception: The first exception of the function.
        """
        self._check_open()
        results: dict[int, R] = {}
        numbered = iter(enumerate(items))

        async def process_items() -> None:
            for number, item in numbered:
                async with self._free:
                    self._check_open()
                    results[number] = await function(item)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._limit, len(items))):
                    group.create_task(process_items())
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures.exceptions[0].__cause__
        return [results[number] for number in range(len(items))]

    async def aclose(self) -> None:
        """Wait for running items; no further item starts."""
        self._closed = True
        for _ in range(self._limit):
            await self._free.acquire()
        for _ in range(self._limit):
            self._free.release()  # waiting calls then raise the error

    def _check_open(self) -> None:
        if self._closed:
            raise Unavailable(self._closed_message)


class FairThreadPool:
    """Applies a blocking function to items on a fixed number of threads; see `FairLimiter`.

    Args:
        workers: The number of threads, at least 1.
        name: The prefix of the threads' names.
    """

    def __init__(self, workers: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix=name)
        self._limiter = FairLimiter(workers, "The embedding model is shut down.")

    async def map(self, function: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """Return ``[function(item) for item in items]``; see `FairLimiter.map`."""
        loop = asyncio.get_running_loop()
        return await self._limiter.map(lambda item: loop.run_in_executor(self._threads, function, item), items)

    async def aclose(self) -> None:
        """Wait for running items, including items of cancelled calls; no further item starts."""
        await self._limiter.aclose()
        await asyncio.to_thread(self._threads.shutdown)
