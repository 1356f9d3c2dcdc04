"""A look-up that concurrent callers share; its result is reused for a short time."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedLook(Generic[T]):
    """Shares the result of one look-up among the callers.

    So many unauthenticated requests do not cause equally many look-ups.

    Args:
        look: Looks up, within a bounded time. After a failure, the next caller starts another look-up.
        fresh: Seconds for which a result is reused; 0: only callers during the look-up share it.
        clock: Returns seconds.
    """

    def __init__(
        self, look: Callable[[], Awaitable[T]], *, fresh: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._look = look
        self._fresh = fresh
        self._clock = clock
        self._looking: asyncio.Task[T] | None = None
        self._until = 0.0

    async def __call__(self) -> T:
        """Return the shared result."""
        looking = self._looking
        if looking is None or (looking.done() and self._clock() >= self._until):
            looking = self._looking = asyncio.create_task(self._looked())
        # A cancelled caller does not cancel the look-up for the others.
        return await asyncio.shield(looking)

    async def _looked(self) -> T:
        seen = await self._look()
        self._until = self._clock() + self._fresh
        return seen
