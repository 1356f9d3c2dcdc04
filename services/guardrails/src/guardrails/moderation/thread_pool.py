"""Threads for what would keep the event loop waiting."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class ThreadPool:
    """A few threads; the pattern engine lets go of the interpreter's lock while it searches.

    Calls that find no free thread wait; how many can wait is bounded by the calls that the server takes.

    Args:
        threads: How many.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="detect")

    async def run(self, inline: bool, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The function's result; computed at once where it is quick, else in a thread."""
        if inline:
            return function(*args, **kwargs)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Waits for what runs, and drops what waits."""
        self._pool.shutdown(wait=True, cancel_futures=True)
