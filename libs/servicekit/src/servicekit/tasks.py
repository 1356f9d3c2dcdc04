"""Reliable cancellation of background tasks."""

import asyncio
from typing import Any


async def ended(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks and wait until they have ended, in any way.

    Before Python 3.12, `asyncio.wait_for`, which nats-py uses, loses a cancellation that coincides with the awaited
    result. So this function cancels repeatedly.
    """
    running = {task for task in tasks if not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=1)
