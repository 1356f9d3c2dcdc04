"""Several awaitables at once, of which none is left running."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from servicekit.tasks import ended


async def together(*coroutines: Coroutine[Any, Any, Any]) -> list[Any]:
    """Run coroutines at once, and return what they return. When one fails, the others are cancelled.

    Raises:
        Exception: What the first one that fails raises, not in a group.
    """
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await ended(*tasks)
