import asyncio

import pytest
from gateway.clients.nats_calls import call_nats
from servicekit.deadline import Deadline
from servicekit.errors import Unavailable


@pytest.mark.parametrize("later", range(4))
async def test_a_cancellation_is_not_lost(later: int) -> None:
    """A cancellation is not lost, however soon it follows the result."""
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def ask() -> int:
        return await answer

    asking = asyncio.create_task(call_nats(ask(), Deadline.after(5), "It"))
    for _ in range(3):
        await asyncio.sleep(0)
    answer.set_result(1)
    for _ in range(later):
        await asyncio.sleep(0)
    left = asking.cancel()
    await asyncio.wait([asking])
    assert asking.cancelled() is left


async def test_a_call_that_exceeds_its_time_is_unavailable() -> None:
    """A call that exceeds its time is cancelled and fails with Unavailable."""
    stopped = asyncio.Event()

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    with pytest.raises(Unavailable, match="It cannot be reached"):
        await call_nats(never(), Deadline.after(5), "It", at_most=0.01)
    assert stopped.is_set()
