"""Ends waiting requests when the gateway begins to stop. Their jobs continue in the workers."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

from servicekit.tasks import discard

T = TypeVar("T")


async def unless_draining(draining: asyncio.Event, work: Coroutine[Any, Any, T], default: T) -> T:
    """Return the result of ``work``. If the gateway begins to stop first, cancel it and return ``default``."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(draining.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else default
    finally:
        await _to_its_end(discard(working, stopping))


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Await ``work`` to its end, and only then raise a cancellation of the current task.

    When the client leaves, Starlette cancels the task of a stream again and again. Without this
    function, the task could close an iterator that still runs.
    """
    ending, cancellation = asyncio.ensure_future(work), None
    while not ending.done():
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is not None:
        raise cancellation


async def until_draining(draining: asyncio.Event, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Yield the items until the iterator ends or the gateway begins to stop."""
    end: Any = object()
    while (item := await unless_draining(draining, anext(items, end), end)) is not end:
        yield item
