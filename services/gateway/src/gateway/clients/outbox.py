"""Records on their way to JetStream: taken at once, sent together, kept for a while when NATS is away."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Self

import nats.errors
import nats.js.errors
import structlog
from nats.js import JetStreamContext
from servicekit.errors import Unavailable
from servicekit.tasks import ended

from gateway.clients.record_queue import RecordQueue
from gateway.ports.records import Record

_log = structlog.get_logger(__name__)
_FAILURES = (OSError, TimeoutError, Unavailable, nats.errors.Error, nats.js.errors.Error)
_SEND_SECONDS = 5.0
_LAST_SECONDS = 3.0
_LARGEST = 512 * 1024
"""Bytes of a record; half of what a broker takes unless it is told otherwise."""
_SPARE = 0.125
"""Share of the room that must be left where nothing may be missed: a request writes many records."""


class Outbox:
    """Implements `ports.records.Records` on NATS JetStream.

    A record that was sent and not acknowledged is sent again under the same id, which the stream takes once. One
    that finds no room is dropped and counted: those who wait for answers are not made to wait for records. The
    tenants share the room and the way (`record_queue`): many records of one keep nobody else's from their stream.

    Args:
        jetstream: The streams; `Unavailable` while they cannot be reached.
        room: Most records that wait; half of them of one tenant.
        room_bytes: Most bytes of these, likewise.
        at_once: Most records that are sent together.
        retry: Seconds between attempts.
    """

    def __init__(
        self,
        jetstream: Callable[[], Awaitable[JetStreamContext]],
        *,
        room: int = 20_000,
        room_bytes: int = 32 * 1024 * 1024,
        at_once: int = 128,
        retry: float = 0.5,
    ) -> None:
        self._jetstream = jetstream
        self._at_once = at_once
        self._retry = retry
        self._waiting = RecordQueue(room, room_bytes)
        self._some = asyncio.Event()
        self._sent = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self._reached = False
        self.dropped = 0

    async def __aenter__(self) -> Self:
        self._sending = asyncio.create_task(self._send())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._waiting and self._reached:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS):
                    await self._sent.wait()
        if self._sending is not None:
            await ended(self._sending)
        if self._waiting:
            _log.error("records are lost", count=len(self._waiting))

    @property
    def waiting(self) -> int:
        """Number of records that are not in their stream yet."""
        return len(self._waiting)

    def write(self, record: Record) -> None:
        """See `ports.records.Records`."""
        fits = len(record.payload) <= _LARGEST
        if not fits or not self._waiting.add(record):
            if self.dropped == 0:
                why = "too many wait" if fits else "one is too large"
                _log.error(f"records are dropped: {why}", waiting=len(self._waiting), size=len(record.payload))
            self.dropped += 1
            return
        self._sent.clear()
        self._some.set()

    async def reachable(self, tenant: str) -> bool:
        """See `ports.records.Records`."""
        if self._waiting.left(tenant) < _SPARE:
            return False
        try:
            await self._jetstream()
        except Unavailable:
            return False
        # What waits for longer than a moment says more than a connection that looks alive.
        return self._reached or not self._waiting

    async def _send(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            while self._waiting:
                try:
                    await self._send_some(await self._jetstream())
                except _FAILURES as error:
                    if self._reached:
                        _log.warning("records wait", error=str(error) or type(error).__name__)
                    self._reached = False
                    await asyncio.sleep(self._retry)
                else:
                    self._reached = True
            self._sent.set()

    async def _send_some(self, jetstream: JetStreamContext) -> None:
        some = self._waiting.take(self._at_once)
        acknowledged = await asyncio.gather(
            *(
                jetstream.publish(
                    record.subject, record.payload, timeout=_SEND_SECONDS, headers={"Nats-Msg-Id": record.id}
                )
                for record in some
            ),
            return_exceptions=True,
        )
        failures: list[BaseException] = []
        kept: list[Record] = []
        for record, answer in zip(some, acknowledged, strict=True):
            if isinstance(answer, BaseException):
                failures.append(answer)
                kept.append(record)
            else:
                self._waiting.done(record)
        # In the order in which they came; what was taken already is known by its id.
        self._waiting.back(kept)
        if failures:
            raise failures[0]
