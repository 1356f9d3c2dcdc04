import asyncio
import gc
from typing import Any

from servicekit.tasks import cancel_and_wait, discard


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


async def test_exceptions_of_discarded_tasks_are_not_logged() -> None:
    """A task that failed, or that fails when it is cancelled, leaves no exception that asyncio logs."""
    logged: list[dict[str, Any]] = []

    async def failing() -> None:
        raise ZeroDivisionError

    async def fails_at_its_cancellation() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            raise ZeroDivisionError

    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    tasks = [asyncio.create_task(work()) for work in (failing, fails_at_its_cancellation)]
    await asyncio.sleep(0)
    await discard(*tasks)
    del tasks
    gc.collect()
    assert logged == []
