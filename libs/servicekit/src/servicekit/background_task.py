"""A task that runs in the background of a block."""

import asyncio
from typing import Self

from servicekit.tasks import cancel_and_wait


class BackgroundTask:
    """A base class for objects whose `_run` runs in the background of an ``async with`` block."""

    _task: "asyncio.Task[None] | None" = None

    async def __aenter__(self) -> Self:
        """Start the task."""
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Cancel the task, and wait until it has ended."""
        if self._task is not None:
            await cancel_and_wait(self._task)

    async def _run(self) -> None:
        raise NotImplementedError
