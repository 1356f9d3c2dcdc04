"""Queue records in memory and send them to JetStream in batches. The records wait while NATS is unavailable."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import structlog
from nats.js import JetStreamContext
from servicekit.background_task import BackgroundTask
from servicekit.errors import Unavailable

from gateway.clients.nats_calls import NATS_FAILURES
from gateway.clients.record_publisher import RecordPublisher
from gateway.clients.record_queue import RecordQueue
from gateway.ports.records import Record

_log = structlog.get_logger(__name__)
_CLOSE_SECONDS = 3.0
_MAX_RECORD_BYTES = 512 * 1024
"""The maximum number of bytes of a record: half of a broker's default limit."""
_MIN_FREE_SHARE = 0.125
"""The share of the queue that `reachable` requires to be free, because one request may write many records."""


class Outbox(BackgroundTask):
    """Implements `ports.records.Records` on NATS JetStream.

    If JetStream does not acknowledge a record, the outbox sends it again with the same id. The stream drops a
    duplicate within two minutes after the first record. If the queue is full, the outbox drops and counts the
    record, because requests do not wait for records. The tenants share the queue (`record_queue`), so that many
    records of one tenant do not delay other tenants.

    Args:
        jetstream: Returns the streams, or raises `Unavailable` while they cannot be reached.
        max_records: The maximum number of waiting records. One tenant may use half of it.
        max_bytes: The maximum number of bytes of the waiting records. One tenant may use half of it.
        batch_size: The maximum number of records in one batch.
        batch_delay: Seconds for which a record waits for further records, so that a batch contains many records.
        retry: Seconds between attempts to send records.
    """

    def __init__(
        self,
        jetstream: Callable[[], Awaitable[JetStreamContext]],
        *,
        max_records: int = 20_000,
        max_bytes: int = 32 * 1024 * 1024,
        batch_size: int = 128,
        batch_delay: float = 0.1,
        retry: float = 0.5,
    ) -> None:
        self._jetstream = jetstream
        self._batch_size = batch_size
        self._batch_delay = batch_delay
        self._retry = retry
        self._waiting = RecordQueue(max_records, max_bytes)
        self._ready = asyncio.Event()
        self._tried, self._sent = asyncio.Event(), asyncio.Event()
        self._publisher = RecordPublisher()
        self._timer: asyncio.TimerHandle | None = None
        self._reached: bool | None = None  # None: not tried yet
        self.dropped = 0

    async def __aexit__(self, *exc: object) -> None:
        reached = self._reached
        if self._timer is not None:
            self._timer.cancel()
        self._ready.set()
        if self._waiting and reached is not False:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._tried.wait()
                    if reached or self._reached:
                        await self._sent.wait()
        await super().__aexit__(*exc)
        if self._waiting:
            _log.error("records are lost", count=len(self._waiting))

    @property
    def waiting(self) -> int:
        """Return the number of records that are not in their stream yet."""
        return len(self._waiting)

    def write(self, record: Record) -> None:
        """See `ports.records.Records`."""
        fits = len(record.payload) <= _MAX_RECORD_BYTES
        if not fits or not self._waiting.add(record):
            if self.dropped == 0:
                reason = "too many wait" if fits else "one is too large"
                _log.error(f"records are dropped: {reason}", waiting=len(self._waiting), size=len(record.payload))
            self.dropped += 1
            return
        self._tried.clear()
        self._sent.clear()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._batch_delay, self._start_sending)

    async def reachable(self, tenant: str) -> bool:
        """See `ports.records.Records`."""
        if self._waiting.free_share(tenant) < _MIN_FREE_SHARE:
            return False
        try:
            await self._jetstream()
        except Unavailable:
            return False
        # A failure to send shows a lost connection earlier than the state of the connection.
        return self._reached is not False or not self._waiting

    def _start_sending(self) -> None:
        self._timer = None
        self._ready.set()

    async def _run(self) -> None:
        while True:
            await self._ready.wait()
            self._ready.clear()
            more = True
            while self._waiting and more:
                try:
                    more = await self._send_batch(await self._jetstream())
                except (Unavailable, *NATS_FAILURES) as error:
                    if self._reached:
                        _log.warning("cannot send records; they wait", error=str(error) or type(error).__name__)
                    self._reached = False
                    self._tried.set()
                    await asyncio.sleep(self._retry)
                else:
                    self._reached = True
                    self._tried.set()
            if not self._waiting:
                self._sent.set()

    async def _send_batch(self, jetstream: JetStreamContext) -> bool:
        """Send the next batch and return whether the batch was full.

        Raises:
            Exception: The failure of the first record that is not acknowledged.
        """
        batch = self._waiting.take(self._batch_size)
        failures = await self._publisher.publish(jetstream, batch)
        for at, record in enumerate(batch):
            if at not in failures:
                self._waiting.done(record)
        # The failed records keep their order. If the stream has stored one already, it recognises the id.
        self._waiting.put_back([batch[at] for at in sorted(failures)])
        if failures:
            raise failures[min(failures)]
        return len(batch) == self._batch_size
