"""A limit on concurrent calls, with a bounded queue."""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable

from servicekit.deadline import Deadline
from servicekit.errors import DeadlineExceeded, RateLimited

# The weight of the newest call in the typical duration (an exponential moving average).
_NEWEST_WEIGHT = 0.2


class ConcurrencyLimiter:
    """Gives slots to a limited number of concurrent callers; further callers wait in a bounded FIFO queue.

    Args:
        slots: The number of slots.
        queue: The maximum number of waiting callers.
        clock: Returns monotonic seconds.

    Attributes:
        busy: The number of slots in use.
        waiting: The number of waiting callers.
    """

    def __init__(self, slots: int, queue: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.busy = 0
        self.waiting = 0
        self._slots = slots
        self._queue = queue
        self._clock = clock
        self._free = asyncio.Semaphore(slots)
        self._typical_seconds = 0.0  # the typical duration of a call in seconds

    @property
    def free(self) -> bool:
        """Return whether a slot is available without waiting."""
        return not self._free.locked()

    @property
    def full(self) -> bool:
        """Return whether all slots are in use and the queue is full."""
        return self._free.locked() and self.waiting >= self._queue

    @property
    def retry_after(self) -> float:
        """Return the expected seconds until a slot is free, rounded up, at least one."""
        return float(max(1, math.ceil(self._wait())))

    def _wait(self) -> float:
        """Estimate the wait of a new caller in seconds, from the typical duration of a call."""
        return 0.0 if self.free else (self.waiting + 1) * self._typical_seconds / self._slots

    @contextlib.asynccontextmanager
    async def acquire(self, deadline: Deadline) -> AsyncIterator[None]:
        """Hold a slot for the duration of the ``async with`` block.

        Raises:
            RateLimited: Immediately, if the queue is full or the expected wait would exceed the deadline.
            DeadlineExceeded: The deadline passed while the caller waited in the queue.
        """
        await self._wait_for_slot(deadline)
        self.busy += 1
        acquired_at = self._clock()
        try:
            yield
        finally:
            self.busy -= 1
            self._free.release()
            seconds = self._clock() - acquired_at
            self._typical_seconds += (seconds - self._typical_seconds) * (
                _NEWEST_WEIGHT if self._typical_seconds else 1.0
            )

    async def _wait_for_slot(self, deadline: Deadline) -> None:
        if self.full or self._wait() > deadline.remaining():
            raise RateLimited("The model is busy; try again later.", retry_after=self.retry_after)
        if self.free:
            await self._free.acquire()  # returns immediately
            return
        self.waiting += 1
        try:
            async with asyncio.timeout(deadline.timeout()):
                await self._free.acquire()
        except TimeoutError as error:
            raise DeadlineExceeded("The request waited for a model until its deadline.") from error
        finally:
            self.waiting -= 1
