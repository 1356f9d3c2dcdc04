"""Calls of NATS: whatever keeps it from answering is one error."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import nats.errors
import nats.js.errors
from nats.js.errors import KeyNotFoundError, ObjectNotFoundError
from servicekit import metrics
from servicekit.deadline import Deadline
from servicekit.errors import DeadlineExceeded, Unavailable
from servicekit.stream_room import is_full

_calls = metrics.durations(
    __name__, "causeway.nats.call.duration", "Seconds of a call of NATS, by what is reached and error."
)
T = TypeVar("T")


async def reached(operation: Coroutine[Any, Any, T], deadline: Deadline, what: str, at_most: float = 30.0) -> T:
    """The operation's result within the deadline. That a key or an object is not there comes through as it is.

    Args:
        operation: A call, not begun.
        deadline: When it must be over.
        what: What is being reached, for the message and the metrics: one of few.
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
    labels = {"causeway.what": what.removeprefix("The ")}
    begin = time.perf_counter()
    try:
        # Not `wait_for`: a cancellation that comes together with the result is lost there (Python 3.11).
        async with asyncio.timeout(seconds):
            return await operation
    except (KeyNotFoundError, ObjectNotFoundError):
        raise
    except (TimeoutError, OSError, nats.errors.Error, nats.js.errors.Error) as error:
        labels["error.type"] = "Unavailable"
        if is_full(error):
            raise Unavailable(f"{what} is full: nothing more is taken. Try again later.", retry_after=30) from error
        raise Unavailable(f"{what} cannot be reached. Try again shortly.", retry_after=2) from error
    finally:
        _calls.record(time.perf_counter() - begin, labels)
