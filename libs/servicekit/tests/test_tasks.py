import asyncio

from servicekit.tasks import cancel_and_wait


async def test_a_task_that_misses_a_cancellation_is_cancelled_again() -> None:
    """The task is cancelled again. A task that has ended, or ends with an error, causes no error."""

    async def deaf() -> None:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            await asyncio.sleep(600)

    async def failing() -> None:
        raise ZeroDivisionError

    first, second = asyncio.create_task(deaf()), asyncio.create_task(failing())
    await asyncio.sleep(0.01)
    await asyncio.wait_for(cancel_and_wait(first, second), 60)
    assert first.cancelled()
    assert isinstance(second.exception(), ZeroDivisionError)
    await cancel_and_wait()
