"""Bounds the open shards, because each needs a thread, a file descriptor and memory.

A shard opens when it is used. When too many are open, the least recently used ones are closed, and idle ones after
some time. The layers above the shard do not notice.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog
from servicekit.tasks import ended

from retriever.stores.edge.shard import LiveShard

_log = structlog.get_logger(__name__)

_LOOK_SECONDS = 5.0
_IDLE_SECONDS = 600.0
"""A shard that was not used for this long is closed."""


@dataclass(frozen=True, slots=True)
class Room:
    """The most that all open shards together may use.

    Attributes:
        shards: Number of shards. Each has a thread of the engine, and a file descriptor.
        memory: Bytes, by the estimate of `LiveShard.memory`.
    """

    shards: int = 1000
    memory: int = 4 * 1024**3


class Parking:
    """Closes shards.

    Args:
        shards: Returns all shards of the store.
        room: What the open ones may use.
    """

    def __init__(self, shards: Callable[[], Iterable[LiveShard]], room: Room) -> None:
        self._shards = shards
        self._room = room
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to look for idle shards regularly."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_again_and_again())

    def make_room(self) -> None:
        """Close the least recently used shards until the others fit, except the latest and those that are written.

        Called after a shard was opened. Closing takes about as long as opening. Both hold the interpreter's lock.
        """
        shards = self._least_recently_used()
        number, memory = len(shards), sum(each.memory for each in shards)
        for shard in shards[:-1]:
            if number <= self._room.shards and memory <= self._room.memory:
                return
            if self._park(shard):
                number, memory = number - 1, memory - shard.memory

    async def look(self) -> int:
        """Close idle shards. Return how many were closed. Then close others, because shards grow."""
        now = time.monotonic()
        parked = 0
        for shard in self._least_recently_used():
            if now - shard.used_at >= _IDLE_SECONDS:
                parked += self._park(shard)
                await asyncio.sleep(0)  # closing holds the interpreter's lock
        self.make_room()
        return parked

    async def aclose(self) -> None:
        """Stop looking for idle shards."""
        if self._looking is not None:
            await ended(self._looking)

    @staticmethod
    def _park(shard: LiveShard) -> bool:
        """Close a shard and return whether it was closed. A failure must not fail the opening of another one."""
        try:
            return shard.park()
        except Exception:
            _log.exception("an index was not closed regularly", index=shard.spec.name)
            return not shard.is_open

    def _least_recently_used(self) -> list[LiveShard]:
        return sorted((each for each in self._shards() if each.is_open), key=lambda each: each.used_at)

    async def _look_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self.look()
            except Exception:
                _log.exception("an idle index was not closed")
