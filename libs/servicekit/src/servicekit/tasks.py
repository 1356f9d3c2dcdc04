"""Ending tasks that run beside others."""

import asyncio
from typing import Any


async def ended(*tasks: "asyncio.Task[Any]") -> None:
    """Cancels tasks and waits until they have ended, however they end.

    Before Python 3.12 `asyncio.wait_for`, which nats-py waits with, loses a cancellation that comes together with
    what was waited for: so not only once.
    """
    running = {task for task in tasks if not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=1)
