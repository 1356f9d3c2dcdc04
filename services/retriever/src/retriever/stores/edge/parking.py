"""Which shards are open: each that is open costs a thread and a descriptor, whether or not anything is asked of it.

An index is opened when something is asked of it, and closed again when nothing was for long, or when more than so
many are open. Nothing above the shard knows of it.
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
"""A shard that was asked for so lately is in use, and is not closed."""


class Parking:
    """Closes the shards that are not used.

    Args:
        shards: Returns all shards of the store.
        most_open: Where more are open, those that were used longest ago are closed.
    """

    def __init__(self, shards: Callable[[], Iterable[LiveShard]], most_open: int = 64) -> None:
        self._shards = shards
        self._most_open = most_open
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look now and then from here on."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_again_and_again())

    async def look(self) -> int:
        """Close what is not used. Return how many shards were closed."""
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
        """End looking."""
        if self._looking is not None:
            await ended(self._looking)

    async def _look_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self.look()
            except Exception:
                _log.exception("an index that is not used was not closed")
