"""Work that must not be left half done when its caller leaves."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Finisher:
    """Runs work to its end, whatever happens to who waits for it."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work returns or raises; a cancellation takes effect once the work has ended."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        cancelled: asyncio.CancelledError | None = None
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled from task.exception()
        return task.result()

    async def aclose(self) -> None:
        """Waits for all work that has begun."""
        while self._running:
            await asyncio.wait(self._running)
