"""The scheduler of blocking work on the event loop.

The embedded engine and its BM25 hold the interpreter's lock during each call, so a thread would not keep the loop
free. They run on the loop, bulk work in slices of a few milliseconds. Each turn of the loop runs at most one slice,
and searches have priority: a search takes several turns and would otherwise wait for a slice in each.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

_PATIENCE = 0.02
"""Seconds that a slice waits for searches. Under constant searches, bulk work runs 50 slices a second."""


class Scheduler:
    """Runs blocking bulk work in slices, after searches."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._searches = 0
        self._nobody_searches = asyncio.Event()
        self._nobody_searches.set()

    @contextlib.asynccontextmanager
    async def slice(self) -> AsyncIterator[None]:
        """Run one slice of bulk work. Other ready tasks run before the next slice."""
        async with self._lock:
            if self._searches:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_PATIENCE):
                        await self._nobody_searches.wait()
            yield
            await asyncio.sleep(0)

    @contextlib.contextmanager
    def search(self) -> Iterator[None]:
        """Mark the time of a search. Slices wait meanwhile."""
        self._searches += 1
        self._nobody_searches.clear()
        try:
            yield
        finally:
            self._searches -= 1
            if not self._searches:
                self._nobody_searches.set()
