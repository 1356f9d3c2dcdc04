"""Takes records at once, sends them to JetStream together, and keeps them for a while when NATS is away."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self

import msgspec
import nats.errors
import nats.js.errors
import structlog
from nats.aio.client import NO_RESPONDERS_STATUS
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import Header
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

    A record that was sent and not acknowledged is sent again under the same id, which the stream takes once. A
    record that finds no room is dropped and counted, because no request waits for records. The tenants share the
    room and the way (`record_queue`): many records of one tenant do not hold up those of another.

    Args:
        jetstream: The streams; `Unavailable` while they cannot be reached.
        room: Most records that wait; half of them of one tenant.
        room_bytes: Most bytes of these, likewise.
        at_once: Most records that are sent together.
        gather: Seconds for which a record waits for others: what the connection costs then is shared by all.
        retry: Seconds between attempts.
    """

    def __init__(
        self,
        jetstream: Callable[[], Awaitable[JetStreamContext]],
        *,
        room: int = 20_000,
        room_bytes: int = 32 * 1024 * 1024,
        at_once: int = 128,
        gather: float = 0.1,
        retry: float = 0.5,
    ) -> None:
        self._jetstream = jetstream
        self._at_once = at_once
        self._gather = gather
        self._retry = retry
        self._waiting = RecordQueue(room, room_bytes)
        self._some = asyncio.Event()
        self._tried, self._sent = asyncio.Event(), asyncio.Event()
        self._leaving = asyncio.Event()
        self._sending: asyncio.Task[None] | None = None
        self._reached: bool | None = None  # None: not tried yet
        self.dropped = 0

    async def __aenter__(self) -> Self:
        self._sending = asyncio.create_task(self._send())
        return self

    async def __aexit__(self, *exc: object) -> None:
        reached = self._reached
        self._leaving.set()
        if self._waiting and reached is not False:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS):
                    await self._tried.wait()
                    if reached or self._reached:
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
        self._tried.clear()
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
        return self._reached is not False or not self._waiting

    async def _send(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._gather):
                    await self._leaving.wait()
            while self._waiting:
                try:
                    await self._send_some(await self._jetstream())
                except _FAILURES as error:
                    if self._reached:
                        _log.warning("records wait", error=str(error) or type(error).__name__)
                    self._reached = False
                    self._tried.set()
                    await asyncio.sleep(self._retry)
                else:
                    self._reached = True
                    self._tried.set()
            self._sent.set()

    async def _send_some(self, jetstream: JetStreamContext) -> None:
        """Send the next records together.

        Raises:
            Exception: The failure of the first record that is not acknowledged.
        """
        some = self._waiting.take(self._at_once)
        failures = await _published(jetstream, some)
        for at, record in enumerate(some):
            if at not in failures:
                self._waiting.done(record)
        # In the order in which they came; what was taken already is known by its id.
        self._waiting.back([some[at] for at in sorted(failures)])
        if failures:
            raise failures[min(failures)]


class _Answer(msgspec.Struct):
    """What a stream answers; see ``PubAck`` of JetStream's API."""

    error: dict[str, Any] | None = None


_answer = msgspec.json.Decoder(_Answer)


async def _published(jetstream: JetStreamContext, records: Sequence[Record]) -> dict[int, Exception]:
    """Publish records, wait until the streams have acknowledged them, and return the failures by position.

    The library's own call waits for each record with a task, a timer and a future.
    """
    client = jetstream._nc  # the library has no call for several messages
    inbox = client.new_inbox()
    failures: dict[int, Exception] = {at: TimeoutError() for at in range(len(records))}
    left = set(failures)
    complete = asyncio.Event()

    async def acknowledged(message: Msg) -> None:
        at = int(message.subject.rpartition(".")[2])
        failure = _failure(message)
        if failure is None:
            failures.pop(at, None)
        elif at in failures:
            failures[at] = failure
        left.discard(at)
        if not left:
            complete.set()

    subscription = await client.subscribe(f"{inbox}.*", cb=acknowledged)
    try:
        for at, record in enumerate(records):
            headers = {Header.MSG_ID.value: record.id}
            try:
                await client.publish(record.subject, record.payload, reply=f"{inbox}.{at}", headers=headers)
            except _FAILURES as error:
                failures[at] = error
                left.discard(at)
        if left:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_SEND_SECONDS):
                    await complete.wait()
    finally:
        with contextlib.suppress(nats.errors.Error, OSError):
            await subscription.unsubscribe()
    return failures


def _failure(message: Msg) -> Exception | None:
    """Return what is wrong according to the answer of a stream; None where it has the record."""
    if (message.headers or {}).get(Header.STATUS.value) == NO_RESPONDERS_STATUS:
        return nats.js.errors.NoStreamResponseError()
    try:
        error = _answer.decode(message.data).error
        if error is not None:
            nats.js.errors.APIError.from_error(error)  # raises it
    except nats.js.errors.APIError as failure:
        return failure
    except (ValueError, KeyError, TypeError) as failure:
        return nats.errors.Error(f"The stream's answer cannot be read: {failure}")
    return None
