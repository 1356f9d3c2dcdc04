import asyncio

import pytest
from gateway.clients.nats_calls import call_nats
from servicekit.deadline import Deadline
from servicekit.errors import Unavailable


@pytest.mark.parametrize("later", range(4))
async def test_a_cancellation_is_not_lost(later: int) -> None:
    """A cancellation is not lost, however soon it follows the result."""
    result: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def operation() -> int:
        return await result

    calling = asyncio.create_task(call_nats(operation(), Deadline.after(5), "The queue"))
    for _ in range(3):
        await asyncio.sleep(0)
    result.set_result(1)
    for _ in range(later):
        await asyncio.sleep(0)
    was_running = calling.cancel()
    await asyncio.wait([calling])
    assert calling.cancelled() is was_running


async def test_a_call_that_exceeds_its_time_is_unavailable() -> None:
    """A call that exceeds its time is cancelled and fails with Unavailable."""
    stopped = asyncio.Event()

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    with pytest.raises(Unavailable, match="The queue cannot be reached"):
        await call_nats(never(), Deadline.after(5), "The queue", max_seconds=0.01)
    assert stopped.is_set()
