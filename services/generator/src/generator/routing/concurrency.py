"""A bound on what runs at once, with a bounded queue in front of it."""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Callable

from servicekit.deadline import Deadline
from servicekit.errors import DeadlineExceeded, RateLimited

# How much the newest answer counts in the typical time of one.
_NEWEST = 0.2


class ConcurrencyLimiter:
    """So many at once; so many more may wait, first come, first served.

    Args:
        most: At once.
        queue: That may wait.
        clock: Monotonic seconds.

    Attributes:
        busy: Slots that are taken.
        waiting: Callers that wait for one.
    """

    def __init__(self, most: int, queue: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.busy = 0
        self.waiting = 0
        self._most = most
        self._queue = queue
        self._clock = clock
        self._free = asyncio.Semaphore(most)
        self._typical = 0.0  # seconds that a slot is held

    @property
    def free(self) -> bool:
        """A slot can be had without waiting."""
        return not self._free.locked()

    @property
    def full(self) -> bool:
        """Nobody may even wait."""
        return self._free.locked() and self.waiting >= self._queue

    @property
    def retry_after(self) -> float:
        """Seconds after which there may be room, whole ones, at least one."""
        return float(max(1, math.ceil(self._wait())))

    def _wait(self) -> float:
        """Seconds that a newcomer has to wait, by what slots were held for so far."""
        return 0.0 if self.free else (self.waiting + 1) * self._typical / self._most

    @contextlib.asynccontextmanager
    async def taken(self, deadline: Deadline) -> AsyncIterator[None]:
        """Holds a slot.

        Raises:
            RateLimited: At once, where the queue is full or the wait would outlast the deadline.
            DeadlineExceeded: The deadline passed in the queue.
        """
        await self._take(deadline)
        self.busy += 1
        since = self._clock()
        try:
            yield
        finally:
            self.busy -= 1
            self._free.release()
            held = self._clock() - since
            self._typical += (held - self._typical) * (_NEWEST if self._typical else 1.0)

    async def _take(self, deadline: Deadline) -> None:
        if self.full or self._wait() > deadline.remaining():
            raise RateLimited("The model is busy; its queue is full.", retry_after=self.retry_after)
        if self.free:
            await self._free.acquire()  # does not wait
            return
        self.waiting += 1
        try:
            async with asyncio.timeout(deadline.timeout()):
                await self._free.acquire()
        except TimeoutError as error:
            raise DeadlineExceeded("The request waited for a model until its deadline.") from error
        finally:
            self.waiting -= 1
