"""Limits the number of open shards, because each needs a thread, a file descriptor and memory.

A parked shard is closed until its next use (`LiveShard.park`). The layers above the shard do not notice this. When
too many shards are open, the least recently used shards are parked. Idle shards are parked after some time. The
engine holds the GIL while it closes a shard, and closing a shard takes as long as opening it. So shards are parked
one by one in slices, after searches.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog
from servicekit.tasks import cancel_and_wait

from retriever.concurrency.scheduler import Scheduler
from retriever.stores.edge.shard import LiveShard

_log = structlog.get_logger(__name__)

_CHECK_SECONDS = 5.0
_IDLE_SECONDS = 600.0
"""A shard that was not used for this long is closed."""
_MAX_EXCESS = 16
"""Number of shards that may be open in excess while they wait for slices."""


@dataclass(frozen=True, slots=True)
class OpenLimits:
    """The limits of all open shards together.

    Attributes:
        shards: Number of shards. Each has a thread of the engine, and a file descriptor.
        memory: Bytes, by the estimate of `LiveShard.memory`.
    """

    shards: int = 1000
    memory: int = 4 * 1024**3


class Parking:
    """Parks shards.

    Args:
        shards: Returns all shards of the store.
        limits: The limits of the open shards.
        scheduler: The scheduler of the slices.
    """

    def __init__(self, shards: Callable[[], Iterable[LiveShard]], limits: OpenLimits, scheduler: Scheduler) -> None:
        self._shards = shards
        self._limits = limits
        self._scheduler = scheduler
        self._opened = asyncio.Event()
        self._checking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start a task that parks idle shards regularly, and that parks shards after `park_soon`."""
        if self._checking is None:
            self._checking = asyncio.create_task(self._keep_checking())

    def park_soon(self) -> None:
        """Park the least recently used shards soon. Call this method after a shard was opened.

        If searches open shards faster than slices park them, this method parks one shard at once.
        """
        self._opened.set()
        if sum(shard.is_open for shard in self._shards()) > self._limits.shards + _MAX_EXCESS:
            next(filter(self._park, self._least_recently_used()[:-1]), None)

    async def check(self) -> int:
        """Park idle shards and return their number. Then park more shards until the open shards meet the limits.

        Shards that are unpublished or being written remain open. The last used shard remains open until it is idle.
        """
        now = time.monotonic()
        parked = 0
        for shard in self._least_recently_used():
            if now - shard.used_at >= _IDLE_SECONDS:
                parked += await self._park_in_a_slice(shard)
        shards = self._least_recently_used()
        number, memory = len(shards), sum(shard.memory for shard in shards)
        for shard in shards[:-1]:
            if number <= self._limits.shards and memory <= self._limits.memory:
                break
            if await self._park_in_a_slice(shard):
                number, memory = number - 1, memory - shard.memory
        return parked

    async def aclose(self) -> None:
        """Stop parking shards."""
        if self._checking is not None:
            await cancel_and_wait(self._checking)

    async def _park_in_a_slice(self, shard: LiveShard) -> bool:
        """Park a shard if it was not used meanwhile. Return whether it was parked."""
        used_at = shard.used_at
        async with self._scheduler.slice():
            return shard.used_at == used_at and self._park(shard)

    @staticmethod
    def _park(shard: LiveShard) -> bool:
        """Park a shard and return whether it was closed. Log a failure, so that opening another shard succeeds."""
        try:
            return shard.park()
        except Exception:
            _log.exception("an index was not closed cleanly", index=shard.spec.name)
            return not shard.is_open

    def _least_recently_used(self) -> list[LiveShard]:
        return sorted((shard for shard in self._shards() if shard.is_open), key=lambda shard: shard.used_at)

    async def _keep_checking(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_SECONDS):
                    await self._opened.wait()
            self._opened.clear()
            try:
                await self.check()
            except Exception:
                _log.exception("an idle index was not closed")
