"""A sync of the log to the disk that several writers share."""

import asyncio
from collections.abc import Awaitable, Callable

_GATHER_SECONDS = 0.001
"""Seconds that a sync waits for more writers."""


class SharedSync:
    """Syncs the log once for all writers that wait.

    Args:
        lock: Held during the sync.
        sync: Syncs the log.
    """

    def __init__(self, lock: asyncio.Lock, sync: Callable[[], Awaitable[None]]) -> None:
        self._lock = lock
        self._sync = sync
        self._next: asyncio.Task[None] | None = None
        self._waiting = 0

    async def wait(self, expected_callers: int = 0) -> None:
        """Wait for a sync that begins after this call. Callers that arrive before it begins share it.

        Args:
            expected_callers: Number of other callers that may follow soon. The sync waits briefly for them.
        """
        if self._next is None:
            self._waiting = 0
            self._next = asyncio.create_task(self._run(expected_callers))
        self._waiting += 1
        await asyncio.shield(self._next)

    async def _run(self, expected_callers: int) -> None:
        async with self._lock:
            if self._waiting <= expected_callers:
                await asyncio.sleep(_GATHER_SECONDS)
            self._next = None
            await self._sync()
