"""Requests that wait until the gateway begins to stop."""

import asyncio

from gateway.routes.draining import unless_draining


async def test_a_repeated_cancellation_waits_for_the_end_of_the_work() -> None:
    """A request that is cancelled several times, as Starlette does when a client leaves, ends after its work."""
    ended = False

    async def work() -> None:
        nonlocal ended
        try:
            await asyncio.sleep(600)
        finally:
            await asyncio.sleep(0.02)
            ended = True

    waiting = asyncio.create_task(unless_draining(asyncio.Event(), work(), None))
    await asyncio.sleep(0.01)
    while not waiting.done():
        waiting.cancel()
        await asyncio.sleep(0)
    assert waiting.cancelled()
    assert ended
