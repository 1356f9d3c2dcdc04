"""Closes idle shards, because each open shard needs a thread and a file descriptor.

A shard opens when it is used. It is closed after an idle time, or when too many shards are open. The layers above
the shard do not notice.
"""

import asyncio
import time
from collections.abc import Callable, Iterable

import structlog
from servicekit.tasks import ended

from retriever.stores.edge.shard import LiveShard

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 5.0
_IDLE_SECONDS = 600.0
"""A shard that was not used for this long is closed."""
_IN_USE_SECONDS = 5.0
"""A shard that was used within this time is not closed."""


class Parking:
    """Closes idle shards.

    Args:
        shards: Returns all shards of the store.
        most_open: If more shards are open, the least recently used ones are closed.
    """

    def __init__(self, shards: Callable[[], Iterable[LiveShard]], most_open: int = 64) -> None:
        self._shards = shards
        self._most_open = most_open
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to look for idle shards regularly."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_again_and_again())

    async def look(self) -> int:
        """Close idle shards. Return how many were closed."""
        shards = sorted((each for each in self._shards() if each.is_open), key=lambda each: each.used_at)
        too_many = len(shards) - self._most_open
        now = time.monotonic()
        parked = 0
        for shard in shards:
            idle = now - shard.used_at
            if idle >= _IDLE_SECONDS or (parked < too_many and idle >= _IN_USE_SECONDS):
                parked += await shard.park()
                await asyncio.sleep(0)  # closing holds the interpreter's lock
        return parked

    async def aclose(self) -> None:
        """Stop looking for idle shards."""
        if self._looking is not None:
            await ended(self._looking)

    async def _look_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self.look()
            except Exception:
                _log.exception("an idle index was not closed")
