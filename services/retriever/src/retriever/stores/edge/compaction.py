"""When an index is rebuilt without what was removed from it, and the steps of that."""

import asyncio
import time
from dataclasses import dataclass

import structlog
from servicekit.errors import CausewayError

from retriever.concurrency.shielding import Shield
from retriever.stores.edge.builder import Builder
from retriever.stores.edge.manifest import Tally
from retriever.stores.edge.shard import LiveShard

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Policy:
    """From when on compacting is worth it.

    Attributes:
        removed: Least points that were removed.
        removed_share: And least share of them among all that the shard holds on its disk.
        added: Least points that were added: more of them are searched one by one than is quick.
        added_share: And least share of them among all points.
    """

    removed: int = 1000
    removed_share: float = 0.2
    added: int = 20_000
    added_share: float = 0.2

    def is_due(self, tally: Tally, points: int) -> bool:
        """Whether it is, with so many points in the shard."""
        return (
            tally.removed >= self.removed and tally.removed >= self.removed_share * (points + tally.removed)
        ) or (tally.added >= self.added and tally.added >= self.added_share * points)


class Compactor:
    """Compacts shards, by itself where the policy says so. Whatever fails, the old shard goes on serving.

    Args:
        builder: Builds the new shard.
        policy: Says when.
    """

    def __init__(self, builder: Builder, policy: Policy) -> None:
        self._builder = builder
        self._policy = policy
        self._running: dict[LiveShard, asyncio.Task[None]] = {}
        # A shard that takes over is not to be stopped half-way.
        self._shield = Shield()

    def consider(self, live: LiveShard) -> None:
        """Begins to compact in the background, if it is due and has not begun."""
        if live.published and not live.is_closed and live not in self._running and self._is_due(live):
            task = self._begin(live)
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # it is in the log

    async def compact(self, live: LiveShard) -> None:
        """Compacts now; whoever asks meanwhile waits for the same. What is not published yet is left as it is.

        Raises:
            Unavailable, RateLimited: As `Builder` does.
        """
        if live.published:
            await asyncio.shield(self._running.get(live) or self._begin(live))

    async def aclose(self) -> None:
        """Stops what has begun."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._shield.aclose()

    def _is_due(self, live: LiveShard) -> bool:
        # Asked after every write: the shard is asked for its number of points only where it may be due.
        return self._policy.is_due(live.tally, 0) and self._policy.is_due(
            live.tally, live.shard.info().points_count
        )

    def _begin(self, live: LiveShard) -> asyncio.Task[None]:
        task = self._running[live] = asyncio.create_task(self._compact(live))
        return task

    async def _compact(self, live: LiveShard) -> None:
        log = _log.bind(index=live.spec.name)
        begin, before = time.perf_counter(), live.tally
        try:
            # The copy, and the new shard.
            async with self._builder.workplace(2 * live.size()) as directory:
                log.debug("rebuilding", stage="copying")
                await live.copy(directory / "copy", to_rebuild=True)
                log.debug("rebuilding", stage="building")
                built = directory / "built"
                vectors = live.current().vectors
                done = await self._builder.build("compact", directory / "copy", built, live.spec, vectors)
                log.debug("rebuilding", stage="replaying")
                await self._shield.run(live.take_over(built, done.points))
            log.info("index compacted", removed=before.removed, seconds=round(time.perf_counter() - begin, 3))
        except CausewayError as error:
            live.tally = Tally()  # not at once again, but after as much again
            log.warning("index not compacted; it goes on as it is", why=error.message)
            raise
        except Exception:
            live.tally = Tally()
            log.exception("index not compacted; it goes on as it is")
            raise
        finally:
            live.forget()
            del self._running[live]
