"""The scheduler of blocking work on the event loop.

The embedded engine and its BM25 hold the interpreter's lock during every call, in whichever thread they are
called: a thread would not keep the loop free. So they run on the loop, long work in slices of a few milliseconds.
Of all that wants to work only one slice runs in each turn of the loop, and who searches goes first: a search takes
several turns, of the loop and of the embedder's threads, and would wait for a slice in each.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

_PATIENCE = 0.02
"""Seconds that a slice waits for searches; under searches without end bulk work goes on at 50 slices a second."""


class Scheduler:
    """Runs blocking bulk work in slices, and searches before it."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._searches = 0
        self._nobody_searches = asyncio.Event()
        self._nobody_searches.set()

    @contextlib.asynccontextmanager
    async def slice(self) -> AsyncIterator[None]:
        """Holds one slice of bulk work; whoever else is ready runs before the next one."""
        async with self._lock:
            if self._searches:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_PATIENCE):
                        await self._nobody_searches.wait()
            yield
            await asyncio.sleep(0)

    @contextlib.contextmanager
    def search(self) -> Iterator[None]:
        """Holds the time of a search."""
        self._searches += 1
        self._nobody_searches.clear()
        try:
            yield
        finally:
            self._searches -= 1
            if not self._searches:
                self._nobody_searches.set()
