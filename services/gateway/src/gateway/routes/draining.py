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
        await discard(working, stopping)


async def until_draining(draining: asyncio.Event, items: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Yield the items until the iterator ends or the gateway begins to stop."""
    end: Any = object()
    while (item := await unless_draining(draining, anext(items, end), end)) is not end:
        yield item
