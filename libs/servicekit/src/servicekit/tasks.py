"""Reliable cancellation of tasks that use nats-py, which can lose a cancellation.

nats-py uses `asyncio.wait_for`. Before Python 3.12, it loses a cancellation that coincides with the awaited result.
Some methods of nats-py catch every cancellation and return.
"""

import asyncio
from typing import Any


async def cancel_and_wait(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks repeatedly until all have ended. Exceptions of the tasks are not raised."""
    running = {task for task in tasks if not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=1)


async def discard(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks as `cancel_and_wait` does, and ignore their exceptions.

    asyncio logs an exception that is never retrieved, so this function retrieves it.
    """
    await cancel_and_wait(*tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()


def raise_if_cancelled() -> None:
    """Raise the cancellation of the current task that a called function may have lost.

    Raises:
        asyncio.CancelledError: The task was cancelled.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
