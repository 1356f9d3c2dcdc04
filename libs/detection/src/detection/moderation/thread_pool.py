"""Threads for work that would block the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class ThreadPool:
    """Threads for searches; the pattern engine releases the GIL during a search.

    Calls wait for a free thread. The server's limit of concurrent calls also limits the waiting calls.

    Args:
        threads: The number of threads.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="detect")

    async def run(self, inline: bool, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Return the function's result; run the function in a thread if ``inline`` is False."""
        if inline:
            return function(*args, **kwargs)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Wait for running calls, and cancel waiting calls."""
        self._pool.shutdown(wait=True, cancel_futures=True)
