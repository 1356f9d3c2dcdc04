"""How much waits in the queue, and for how long: looked at now and then, shown to scrapes."""

import asyncio
import contextlib
from datetime import UTC, datetime

import nats.errors
import nats.js.errors
import structlog
from nats.js.errors import NotFoundError
from servicekit import keys, metrics
from servicekit.nats import IngestTransport

_log = structlog.get_logger(__name__)


class QueueLevels:
    """Each lane's depth (jobs that wait or are worked on) and age (seconds since its oldest job came).

    Every worker tells the same of the one queue: dashboards take the greatest.

    Args:
        transport: Has the queue.
        every: Seconds between looks.
    """

    def __init__(self, transport: IngestTransport, *, every: float = 10.0) -> None:
        self._transport = transport
        self._every = every
        self._depths: dict[int, float] = {}
        self._ages: dict[int, float] = {}
        metrics.observed(
            __name__, "causeway.ingest.queue.depth", "", "Jobs of a lane.", lambda: _labelled(self._depths)
        )
        metrics.observed(
            __name__, "causeway.ingest.queue.age", "s", "Age of a lane's oldest job.", lambda: _labelled(self._ages)
        )

    async def watch(self, stop: asyncio.Event) -> None:
        """Looks until the event is set."""
        while not stop.is_set():
            try:
                for lane in range(keys.INGEST_LANES):
                    await self._look(lane)
            except (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError) as error:
                _log.debug("the queue cannot be looked at", error=str(error))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._every):
                    await stop.wait()

    async def _look(self, lane: int) -> None:
        jetstream = self._transport.jetstream
        consumer = await jetstream.consumer_info(keys.INGEST_STREAM, keys.ingest_consumer(lane))
        self._depths[lane] = (consumer.num_pending or 0) + (consumer.num_ack_pending or 0)
        try:
            oldest = await jetstream.get_msg(keys.INGEST_STREAM, 1, keys.ingest_lane(lane), next=True)
        except NotFoundError:
            self._ages[lane] = 0.0
        else:
            came = oldest.time or datetime.now(UTC)
            self._ages[lane] = max(0.0, (datetime.now(UTC) - came).total_seconds())


def _labelled(values: dict[int, float]) -> list[tuple[float, dict[str, str]]]:
    return [(value, {"lane": str(lane)}) for lane, value in values.items()]
