"""Concurrent coroutines that all end before the call returns."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from servicekit.tasks import cancel_and_wait


async def gather_all(*coroutines: Coroutine[Any, Any, Any]) -> list[Any]:
    """Run coroutines concurrently and return their results. If one fails, cancel the others.

    Raises:
        Exception: The exception of the first coroutine that fails. It is not wrapped in an exception group.
    """
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel_and_wait(*tasks)
