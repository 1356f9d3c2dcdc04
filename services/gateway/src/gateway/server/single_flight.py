"""A look at something that many may ask for: one answers all who ask while it lasts, and for a moment after."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedLook(Generic[T]):
    """Looks when it is asked and what it saw is old; who asks meanwhile gets the same.

    So that whoever asks a hundred times a second, without credentials, does not have others asked as often.

    Args:
        look: Looks, within a bounded time. Where it fails, the next one who asks has it look again.
        fresh: Seconds for which what was seen is good; 0: only who asks while it looks gets the same.
        clock: Seconds.
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
        """What is seen."""
        looking = self._looking
        if looking is None or (looking.done() and self._clock() >= self._until):
            looking = self._looking = asyncio.create_task(self._looked())
        # Who leaves takes it from nobody else.
        return await asyncio.shield(looking)

    async def _looked(self) -> T:
        seen = await self._look()
        self._until = self._clock() + self._fresh
        return seen
