"""Reliable cancellation of background tasks."""

import asyncio
from typing import Any


async def cancel_and_wait(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until all have ended. Exceptions of the tasks are not raised.

    nats-py uses `asyncio.wait_for`. Before Python 3.12, it loses a cancellation that coincides with the awaited
    result. So this function cancels the tasks repeatedly.
    """
    running = {task for task in tasks if not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=1)
