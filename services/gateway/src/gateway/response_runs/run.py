"""Writes the events of an answer to its log before they are sent to the client."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TypeVar

import structlog
from servicekit import metrics
from servicekit.deadline import Deadline
from servicekit.errors import BrokenOff, CausewayError, Conflict, Internal, PayloadTooLarge, Unavailable
from servicekit.principal import Principal
from servicekit.tasks import cancel_and_wait

from gateway.dialects.responses.exchange import ResponsesExchange
from gateway.domain import Batch, Done
from gateway.domain.response_log import Entry
from gateway.domain.responses import Stored
from gateway.ports.response_log import ResponseLog
from gateway.ports.responses import ResponseStore

_log = structlog.get_logger(__name__)
_BATCH_SECONDS, _BATCH_BYTES = 0.05, 4096
"""Limits of one batch of events, which is one write to the log."""
_MAX_WAITING_BYTES = 64 * 1024
_FIRST_WRITE_SECONDS = 5.0

_writes = metrics.durations(
    __name__,
    "causeway.responses.log.write",
    "Seconds until events of a response are in its log, including waits for NATS.",
)
_unstored = metrics.counter(
    __name__,
    "causeway.responses.unkept",
    "{response}",
    "Responses that were answered but could not be stored.",
)

T = TypeVar("T")
Answer = AsyncGenerator[Batch, None]
Continue = Callable[[Stored], Awaitable[None]]


@dataclass(slots=True)
class ResumePoint:
    """The state of a response when an attempt to answer begins.

    Attributes:
        position: Position of the log's last entry; 0: the log is empty.
        events: The events in the log.
        revision: Revision of the stored response; 0: it is not stored yet.
    """

    position: int = 0
    events: Sequence[bytes] = ()
    revision: int = 0


class Run:
    """One attempt to answer, with its log.

    Args:
        exchange: Renders the answer.
        principal: The owner of the response.
        profile: Name of the front end.
        store: Stores the response.
        log: Stores the events of the response.
        writer: Name of this attempt.
        before: The state of the response at the start.
        completed: Called with the stored response after a complete answer.
        deadline: The deadline. Until then, the run repeats calls to an unavailable log or store. It does not repeat
            the first write of a new response.

    Attributes:
        done: The last event of a complete answer.
        failure: The error of a failed answer.
        continues: Whether the answer continues after the client has disconnected, because its events are stored.
    """

    def __init__(
        self,
        exchange: ResponsesExchange,
        principal: Principal,
        profile: str,
        store: ResponseStore,
        log: ResponseLog,
        writer: str,
        *,
        before: ResumePoint | None = None,
        completed: Continue | None = None,
        deadline: Deadline,
    ) -> None:
        self._exchange, self._principal, self._profile = exchange, principal, profile
        self._store, self._log, self._writer = store, log, writer
        self._before = before or ResumePoint()
        self._completed, self._deadline = completed, deadline
        self._position, self._revision = self._before.position, self._before.revision
        self._next = 0  # the number of the next event
        self._waiting: list[bytes] = []
        self._size = 0
        self._changed, self._full, self._drained = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._produced = False
        self.failure: CausewayError | None = None
        self.done: Done | None = None
        self.continues = False

    async def logged_events(self, answer: Answer) -> AsyncGenerator[bytes, None]:
        """Yield the events of an answer after they are written to the log.

        If the first write of a new response raises `Unavailable` or `PayloadTooLarge`, the answer is sent without
        being stored.

        Raises:
            CausewayError: The answer failed before it began, or the log or the store failed.
            Conflict: The response was deleted or cancelled, or another gateway answers it.
            BrokenOff: The answer differs from the events in the log.
        """
        if self._exchange.background:
            self._put(self._exchange.begin())
        producing = asyncio.create_task(self._produce(answer))
        loop = asyncio.get_running_loop()
        try:
            while not self._produced or self._waiting:
                await self._changed.wait()
                self._changed.clear()
                flushed = loop.time()
                if data := await self._flush():
                    yield data
                if not self._produced:
                    await self._wait_for_batch(flushed + _BATCH_SECONDS)
            if data := await self._end():
                yield data
        finally:
            await cancel_and_wait(producing)

    async def _produce(self, answer: Answer) -> None:
        try:
            async with aclosing(answer) as batches:
                async for batch in batches:
                    if type(last := batch[-1]) is Done:
                        self.done, batch = last, batch[:-1]
                    if batch:
                        self._put(self._exchange.render(batch))
                    while self._size > _MAX_WAITING_BYTES:
                        self._drained.clear()
                        await self._drained.wait()
        except CausewayError as error:
            self.failure = error
        except Exception as error:  # the boundary: the client gets a failed stream, the program's log the cause
            _log.exception("answer failed", dialect="responses", error=str(error))
            self.failure = Internal()
        finally:
            self._produced = True
            self._changed.set()
            self._full.set()

    def _put(self, data: bytes) -> None:
        if data:
            self._waiting.append(data)
            self._size += len(data)
            self._changed.set()
            if self._size >= _BATCH_BYTES:
                self._full.set()

    async def _wait_for_batch(self, until: float) -> None:
        """Wait until the batch is full, or a point in time."""
        if self._size < _BATCH_BYTES:
            self._full.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._full.wait()
            except TimeoutError:
                pass

    async def _flush(self) -> bytes:
        """Write the batch and return its events."""
        data, self._waiting, self._size = b"".join(self._waiting), [], 0
        self._drained.set()
        return await self._write(data) if data else b""

    async def _write(self, data: bytes, logged: bytes | None = None, *, end: bool = False) -> bytes:
        """Write events and return the bytes to send.

        Args:
            data: The events to send.
            logged: The events to write, if they differ.
            end: Whether these are the last events.
        """
        first, self._next = self._next, self._exchange.count
        entry = Entry(self._writer, first, self._next - 1, data if logged is None else logged, end)
        if first < len(self._before.events):
            entry = self._without_logged(entry)
            data = entry.data
        if not entry.data:
            return b""
        if not self._exchange.store:
            return data
        try:
            await self._append(entry)
        except (Unavailable, PayloadTooLarge) as error:
            if self.continues or self._before.revision:
                raise
            # Send the answer although it cannot be stored.
            _log.warning("a response is not stored", response=self._exchange.response_id, error=error.message)
            self._exchange.store = False
            _unstored.add(1)
        return data

    async def _append(self, entry: Entry) -> None:
        begin = time.perf_counter()
        name = self._exchange.response_id
        if self._position or self._before.revision:
            self._position = await self._retried(
                lambda: self._log.append(self._principal, name, entry, self._position, self._deadline)
            )
        else:
            deadline = Deadline.after(min(_FIRST_WRITE_SECONDS, self._deadline.timeout() or _FIRST_WRITE_SECONDS))
            begun = self._exchange.record_begun(self._profile)
            self._position = await self._log.append(self._principal, name, entry, 0, deadline)
            saved = await self._store.save(self._principal, begun, deadline)
            self._revision = saved.revision
        self.continues = True
        _writes.record(time.perf_counter() - begin)

    def _without_logged(self, entry: Entry) -> Entry:
        """Return the part of an entry that is not in the log.

        Raises:
            BrokenOff: The answer differs from the one in the log.
        """
        logged_events = self._before.events
        for number, event in entry.events():
            if number < len(logged_events) and logged_events[number] != event:
                raise BrokenOff("The answer was interrupted and cannot be continued.")
        first = min(entry.last + 1, len(logged_events))
        return Entry(entry.writer, first, entry.last, entry.after(first - 1), entry.ended)

    async def _end(self) -> bytes:
        """End the response. Store it before its last event is written."""
        if self.failure is not None and not self._exchange.has_begun:
            raise self.failure
        exchange = self._exchange
        if self.failure is not None:
            _log.warning("answer broke off", dialect="responses", error=self.failure.message, exc_info=self.failure)
            stored = exchange.record_failed(self._profile, self.failure)
        else:
            stored = exchange.record(self._profile)
        # If this gateway stops before it writes the last event, other gateways render it from the stored response.
        ending = await self._write(exchange.flush())
        if exchange.store:
            stored = await self._replace(stored)
        if self._completed is not None and self.failure is None:
            await self._completed(stored)
        if self.failure is not None:
            data = exchange.render_failure(self.failure)
        else:
            data = exchange.render([self.done or Done(())])
        try:
            return ending + await self._write(data, exchange.logged(data), end=True)
        except PayloadTooLarge:
            # Readers render the last event from the stored response.
            number = self._next - 1
            await self._append(Entry(self._writer, number, number, ended=True))
            return ending + data

    async def _replace(self, stored: Stored) -> Stored:
        """Store the final response and return it. The first gateway that stores a final state decides."""
        if not self._revision:
            return stored
        final = replace(stored, revision=self._revision)
        try:
            replaced = await self._replaced(final)
        except PayloadTooLarge as error:
            _log.warning("a response is too large to be stored", response=stored.id, error=error.message)
            final = replace(final, object={**stored.object, "output": []}, items=())
            replaced = await self._replaced(final)
        if not replaced:
            current = await self._retried(lambda: self._store.read(self._principal, stored.id, self._deadline))
            if current is None or current.object != final.object:
                raise Conflict("Another gateway ended the response, or it was cancelled.", resource=stored.id)
        return final

    async def _replaced(self, stored: Stored) -> Stored | None:
        return await self._retried(lambda: self._store.replace(self._principal, stored, self._deadline))

    async def _retried(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a call. Repeat the call while NATS is unavailable, until the deadline."""
        while True:
            try:
                return await call()
            except Unavailable:
                self._deadline.timeout()  # raises after the deadline
                await asyncio.sleep(_BATCH_SECONDS)
