"""Events on their way out: what has arrived goes out together."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from servicekit.tasks import ended

from generator.domain import Event

_EVENT_OVERHEAD = 16


class _Buffer:
    """Events between a model and the wire, bounded by their number and by their bytes.

    The first event always fits, however large it is; so an event of any size gets through, alone.
    """

    def __init__(self, most_events: int, most_bytes: int) -> None:
        self._most_events = most_events
        self._most_bytes = most_bytes
        self._events: list[Event] = []
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()

    @property
    def waiting(self) -> bool:
        """Something is there to be drained."""
        return bool(self._events)

    async def fill(self, events: AsyncGenerator[Event, None]) -> None:
        """Reads a model to its end, waiting whenever the buffer is full."""
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    # Characters stand for bytes: the bound is there to bound, not to be exact.
                    size = len(event.text) + len(event.raw_json) + _EVENT_OVERHEAD
                    while self._events and (
                        len(self._events) >= self._most_events or self._bytes + size > self._most_bytes
                    ):
                        self._room.clear()
                        await self._room.wait()
                    self._events.append(event)
                    self._bytes += size
                    self._arrived.set()
        finally:
            self._arrived.set()

    async def drain(self) -> list[Event]:
        """All that is there, waiting for the first one; nothing when the model has ended."""
        await self._arrived.wait()
        self._arrived.clear()
        batch, self._events, self._bytes = self._events, [], 0
        self._room.set()
        return batch


async def batched(
    events: AsyncGenerator[Event, None], *, most_events: int, most_bytes: int
) -> AsyncGenerator[list[Event], None]:
    """A model's events in order, as batches of whatever had arrived when the reader asked.

    A task of its own reads the model, so that events gather while the reader is busy with the last batch; it stops
    reading when as much is waiting as a batch may hold. Nothing is held back for company: the first event, and
    each one that comes alone, goes out alone. Closing this generator stops the model before it returns; the
    model's exception is raised here after everything that came before it.

    Args:
        events: The model's answer; closed at the end.
        most_events: Most events of a batch.
        most_bytes: Most bytes of a batch, about; a single larger event is a batch by itself.
    """
    buffer = _Buffer(most_events, most_bytes)
    producer = asyncio.create_task(buffer.fill(events))
    try:
        while not producer.done() or buffer.waiting:
            if batch := await buffer.drain():
                yield batch
        producer.result()
    finally:
        await ended(producer)
        if not producer.cancelled():
            producer.exception()  # looked at, so that asyncio does not report it as forgotten
