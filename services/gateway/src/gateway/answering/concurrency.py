"""Run several operations of one request concurrently."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")


@asynccontextmanager
async def background_task(coroutine: Coroutine[Any, Any, A]) -> AsyncIterator["asyncio.Future[A]"]:
    """Run a coroutine concurrently with the block, and cancel it when the block ends."""
    task = asyncio.ensure_future(coroutine)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def run_both(first: Coroutine[Any, Any, A], second: Coroutine[Any, Any, B]) -> tuple[A, B]:
    """Run two coroutines concurrently and return their results. If both fail, raise the error of the first one."""
    tasks = asyncio.ensure_future(first), asyncio.ensure_future(second)
    try:
        return await tasks[0], await tasks[1]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
