"""Batches of the items of a stream: all items that have arrived are sent or processed together."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import Any, Generic, TypeVar

from servicekit.tasks import cancel_and_wait

T = TypeVar("T")


def _no_size(_: Any) -> int:
    return 0


async def batched(
    source: AsyncGenerator[T, None], max_items: int, *, size: Callable[[T], int] = _no_size, max_size: int = 0
) -> AsyncGenerator[list[T], None]:
    """Yield the items of a source in order; each batch has all items that have arrived since the last batch.

    A separate task reads the source, so that items gather while the consumer handles a batch. The task pauses while
    the next batch is full, so that a slow consumer slows the source down. An item never waits for later items. Use
    with ``contextlib.aclosing``: if the consumer closes this generator, it stops the source before it ends.

    Args:
        source: The items. This generator closes the source at the end.
        max_items: The maximum number of items in a batch.
        size: Returns the size of an item; without this function, only ``max_items`` limits a batch.
        max_size: The maximum size of a batch. A larger item forms its own batch.

    Raises:
        Exception: The exception of the source, after all earlier items.
    """
    buffer = _Buffer(max_items, size, max_size)
    producer = asyncio.create_task(buffer.fill(source))
    try:
        while not producer.done() or buffer.has_items:
            if batch := await buffer.drain():
                yield batch
        producer.result()
    finally:
        await cancel_and_wait(producer)
        if not producer.cancelled():
            producer.exception()  # read the exception, so that asyncio does not log it as unread


class _Buffer(Generic[T]):
    """The next batch. The first item always fits, so that an item of any size passes."""

    def __init__(self, max_items: int, size: Callable[[T], int], max_size: int) -> None:
        self._max_items = max_items
        self._size_of = size
        self._max_size = max_size
        self._items: list[T] = []
        self._size = 0
        self._not_empty = asyncio.Event()
        self._not_full = asyncio.Event()

    @property
    def has_items(self) -> bool:
        """Return whether the buffer has items."""
        return bool(self._items)

    async def fill(self, source: AsyncGenerator[T, None]) -> None:
        """Put all items of the source into the buffer; wait while the buffer is full."""
        try:
            async with contextlib.aclosing(source):
                async for item in source:
                    size = self._size_of(item)
                    while self._items and (
                        len(self._items) >= self._max_items or self._size + size > self._max_size
                    ):
                        self._not_full.clear()
                        await self._not_full.wait()
                    self._items.append(item)
                    self._size += size
                    self._not_empty.set()
        finally:
            self._not_empty.set()

    async def drain(self) -> list[T]:
        """Wait for an item and return all items of the buffer; return an empty list after the last item."""
        await self._not_empty.wait()
        self._not_empty.clear()
        batch, self._items, self._size = self._items, [], 0
        self._not_full.set()
        return batch
