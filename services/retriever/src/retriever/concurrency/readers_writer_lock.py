"""A readers-writer lock for tasks of one event loop."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class ReadersWriterLock:
    """A lock that many tasks hold in shared mode, or one task holds in exclusive mode.

    It admits tasks in the order of their arrival. It is not reentrant.
    """

    def __init__(self) -> None:
        self._entrance = asyncio.Lock()  # a writer holds it until the end, a reader releases it at once
        self._readers = 0
        self._no_readers = asyncio.Event()
        self._no_readers.set()

    @contextlib.asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold the lock in shared mode. Wait for earlier writers."""
        async with self._entrance:
            self._readers += 1
            self._no_readers.clear()
        try:
            yield
        finally:
            self._readers -= 1
            if not self._readers:
                self._no_readers.set()

    @contextlib.asynccontextmanager
    async def exclusive(self, seconds: float) -> AsyncIterator[None]:
        """Hold the lock in exclusive mode. Wait for all earlier holders.

        Raises:
            TimeoutError: The earlier holders did not release the lock within ``seconds``.
        """
        async with contextlib.AsyncExitStack() as entered:
            async with asyncio.timeout(seconds):
                await entered.enter_async_context(self._entrance)
                await self._no_readers.wait()
            yield
