"""Batches of events: the servicer sends all events that have arrived in one gRPC message."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from servicekit.tasks import cancel_and_wait

from generator.domain import Event

_EVENT_OVERHEAD = 16


class _Buffer:
    """A buffer of events between a model and the wire, bounded by number and by bytes.

    The first event always fits, so that an event of any size passes.
    """

    def __init__(self, max_events: int, max_bytes: int) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._events: list[Event] = []
        self._bytes = 0
        self._not_empty = asyncio.Event()
        self._not_full = asyncio.Event()

    @property
    def has_events(self) -> bool:
        """Return whether the buffer has events."""
        return bool(self._events)

    async def fill(self, events: AsyncGenerator[Event, None]) -> None:
        """Put all events of a model into the buffer; wait while the buffer is full."""
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    # The number of characters approximates the bytes; the bound need not be exact.
                    size = len(event.text) + len(event.raw_json) + _EVENT_OVERHEAD
                    while self._events and (
                        len(self._events) >= self._max_events or self._bytes + size > self._max_bytes
                    ):
                        self._not_full.clear()
                        await self._not_full.wait()
                    self._events.append(event)
                    self._bytes += size
                    self._not_empty.set()
        finally:
            self._not_empty.set()

    async def drain(self) -> list[Event]:
        """Wait for an event and return all events of the buffer; return an empty list after the last event."""
        await self._not_empty.wait()
        self._not_empty.clear()
        batch, self._events, self._bytes = self._events, [], 0
        self._not_full.set()
        return batch


async def batched(
    events: AsyncGenerator[Event, None], *, max_events: int, max_bytes: int
) -> AsyncGenerator[list[Event], None]:
    """Yield a model's events in order; each batch has all events that have arrived since the last batch.

    A separate task reads the model, so that events gather while the consumer handles a batch. The task pauses while
    the next batch is full. An event never waits for later events. If the consumer closes this generator, the
    generator stops the model before it ends. It raises the model's exception after all earlier events.

    Args:
        events: The events of the model's answer. This generator closes the source at the end.
        max_events: The maximum number of events in a batch.
        max_bytes: The approximate maximum size of a batch in bytes. A larger event forms its own batch.
    """
    buffer = _Buffer(max_events, max_bytes)
    producer = asyncio.create_task(buffer.fill(events))
    try:
        while not producer.done() or buffer.has_events:
            if batch := await buffer.drain():
                yield batch
        producer.result()
    finally:
        await cancel_and_wait(producer)
        if not producer.cancelled():
            producer.exception()  # read the exception, so that asyncio does not log it as unread
