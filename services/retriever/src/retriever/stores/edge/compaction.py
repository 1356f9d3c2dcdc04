"""Compaction: rebuilds a shard without removed points."""

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
    """The conditions for a compaction.

    Attributes:
        removed: Minimum number of removed points.
        removed_share: Minimum share of removed points among the points on the disk.
        added: Minimum number of added points. A search compares added points one by one.
        added_share: Minimum share of added points.
    """

    removed: int = 1000
    removed_share: float = 0.2
    added: int = 20_000
    added_share: float = 0.2

    def is_due(self, tally: Tally, points: int) -> bool:
        """Return whether a compaction is due for a shard with this number of points."""
        return (
            tally.removed >= self.removed and tally.removed >= self.removed_share * (points + tally.removed)
        ) or (tally.added >= self.added and tally.added >= self.added_share * points)


class Compactor:
    """Compacts shards on request, and automatically by the policy. If this fails, the old shard remains in use.

    Args:
        builder: Builds the new shard.
        policy: The conditions.
    """

    def __init__(self, builder: Builder, policy: Policy) -> None:
        self._builder = builder
        self._policy = policy
        self._running: dict[LiveShard, asyncio.Task[None]] = {}
        # The replacement of a shard must not be interrupted.
        self._shield = Shield()

    def start_if_due(self, live: LiveShard) -> None:
        """Start a compaction in the background if one is due and none is running."""
        if live.is_published and not live.is_closed and live not in self._running and self._is_due(live):
            task = self._begin(live)
            task.add_done_callback(
                lambda done: done.cancelled() or done.exception()
            )  # `_compact` has logged the error

    async def compact(self, live: LiveShard) -> None:
        """Compact now. Concurrent calls wait for the same compaction. An unpublished shard is not compacted.

        Raises:
            Unavailable, RateLimited: See `Builder`.
        """
        if live.is_published:
            await asyncio.shield(self._running.get(live) or self._begin(live))

    async def aclose(self) -> None:
        """Stop running compactions."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._shield.aclose()

    def _is_due(self, live: LiveShard) -> bool:
        # This runs after every write, so the shard counts its points only if a compaction may be due.
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
            # The working directory contains the copy and the new shard.
            async with self._builder.working_directory(2 * live.size()) as directory:
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
            live.tally = Tally()  # the next attempt is due after the same number of changes
            log.warning("index not compacted; it is unchanged", why=error.message)
            raise
        except Exception:
            live.tally = Tally()
            log.exception("index not compacted; it is unchanged")
            raise
        finally:
            live.stop_recording()
            del self._running[live]
