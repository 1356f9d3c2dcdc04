"""What waits is taken together."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeVar

T = TypeVar("T")


async def batches(source: AsyncIterator[T], limit: int) -> AsyncGenerator[list[T], None]:
    """Everything that the source has given since the last batch, as soon as there is something.

    The source is read ahead by at most ``limit`` items, so that a slow consumer stops it. Use with
    ``contextlib.aclosing``: leaving then stops the reading at once.

    Raises:
        Exception: What the source raises, after the items it gave before.
    """
    waiting: list[T] = []
    arrived, taken = asyncio.Event(), asyncio.Event()

    async def read() -> None:
        async for item in source:
            waiting.append(item)
            arrived.set()
            if len(waiting) == limit:
                taken.clear()
                await taken.wait()

    reader = asyncio.create_task(read())
    reader.add_done_callback(lambda _: arrived.set())
    try:
        while True:
            if waiting:
                batch = waiting.copy()
                waiting.clear()
                taken.set()
                yield batch
            elif reader.done():
                await reader
                return
            else:
                arrived.clear()
                await arrived.wait()
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
