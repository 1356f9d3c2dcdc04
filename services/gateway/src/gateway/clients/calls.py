"""Calls of NATS: whatever keeps it from answering is one error."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import nats.errors
import nats.js.errors
from nats.js.errors import KeyNotFoundError, ObjectNotFoundError
from servicekit.deadline import Deadline
from servicekit.errors import DeadlineExceeded, Unavailable

T = TypeVar("T")


async def reached(operation: Coroutine[Any, Any, T], deadline: Deadline, what: str, at_most: float = 30.0) -> T:
    """The operation's result within the deadline. That a key or an object is not there comes through as it is.

    Args:
        operation: A call, not begun.
        deadline: When it must be over.
        what: What is being reached, for the message.
        at_most: Seconds, whatever the deadline says.

    Raises:
        DeadlineExceeded: It has passed already; the call was not begun.
        Unavailable: NATS is away, full, or too slow.
    """
    try:
        seconds = deadline.timeout(at_most)
    except DeadlineExceeded:
        operation.close()  # else Python warns of a coroutine that nobody awaited
        raise
    try:
        return await asyncio.wait_for(operation, seconds)
    except (KeyNotFoundError, ObjectNotFoundError):
        raise
    except (TimeoutError, OSError, nats.errors.Error, nats.js.errors.Error) as error:
        raise Unavailable(f"{what} cannot be reached. Try again shortly.", retry_after=2) from error
