"""Work that runs beside other work of the same request, and ends with it."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, A]) -> AsyncIterator["asyncio.Future[A]"]:
    """Runs it beside the block, and no longer than that."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def together(first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Runs both at once; where both fail, the first one's failure is the one that is raised."""
    tasks = asyncio.ensure_future(first), asyncio.ensure_future(second)
    try:
        return await tasks[0], await tasks[1]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
