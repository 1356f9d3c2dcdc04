"""Work that runs concurrently with other work of the same request, and ends with it."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, A]) -> AsyncIterator["asyncio.Future[A]"]:
    """Run work concurrently with the block; cancel it when the block ends."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def together(first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Run both concurrently; if both fail, raise the first one's error."""
    tasks = asyncio.ensure_future(first), asyncio.ensure_future(second)
    try:
        return await tasks[0], await tasks[1]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
