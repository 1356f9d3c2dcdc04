"""The scheduler of blocking work on the event loop.

The embedded engine and its BM25 hold Python's global interpreter lock (GIL) during each call, so a call in a thread
would block the loop as well. Reads and writes therefore run on the loop. Bulk work runs in slices of a few
milliseconds. Each iteration of the loop runs at most one slice. Searches have priority: a search needs several
iterations of the loop, and would otherwise wait for a slice in each of them.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

_MAX_WAIT_SECONDS = 0.02
"""Maximum seconds that a slice waits for searches. Under constant searches, bulk work runs 50 slices a second."""


class Scheduler:
    """Runs blocking bulk work in slices, after searches."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._searches = 0
        self._no_searches = asyncio.Event()
        self._no_searches.set()

    @contextlib.asynccontextmanager
    async def slice(self) -> AsyncIterator[None]:
        """Run one slice of bulk work. Other ready tasks run before the next slice."""
        async with self._lock:
            if self._searches:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_MAX_WAIT_SECONDS):
                        await self._no_searches.wait()
            yield
            await asyncio.sleep(0)

    @contextlib.contextmanager
    def search(self) -> Iterator[None]:
        """Count a search as running. Slices wait until it ends."""
        self._searches += 1
        self._no_searches.clear()
        try:
            yield
        finally:
            self._searches -= 1
            if not self._searches:
                self._no_searches.set()
