"""Shares one asynchronous call among concurrent callers, and reuses its result for a short time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Shares the result of one call among its callers, so that many requests cause only one call.

    Args:
        call: The call, which ends within a limited time. After a failure, the next caller repeats the call.
        reuse_seconds: Seconds for which a result is reused; 0: only callers during the call share its result.
        clock: Returns seconds.
    """

    def __init__(
        self,
        call: Callable[[], Awaitable[T]],
        *,
        reuse_seconds: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._call = call
        self._reuse_seconds = reuse_seconds
        self._clock = clock
        self._running: asyncio.Task[T] | None = None
        self._until = 0.0

    async def __call__(self) -> T:
        """Return the shared result."""
        running = self._running
        if running is None or (running.done() and self._clock() >= self._until):
            running = self._running = asyncio.create_task(self._run())
        # A cancelled caller does not cancel the call for the others.
        return await asyncio.shield(running)

    async def _run(self) -> T:
        result = await self._call()
        self._until = self._clock() + self._reuse_seconds
        return result
