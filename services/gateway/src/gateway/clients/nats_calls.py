"""Call NATS, measure the calls, and convert each failure to an error of `servicekit.errors`."""

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
    __name__, "causeway.nats.call.duration", "Seconds of a call of NATS, by target and error."
)
T = TypeVar("T")


async def reached(operation: Coroutine[Any, Any, T], deadline: Deadline, what: str, at_most: float = 30.0) -> T:
    """Return the operation's result within the deadline. Errors about a missing key or object do not change.

    Args:
        operation: A call that has not begun.
        deadline: The time by which the call must end.
        what: The name of the target, for the message and the metrics. The number of names must be small.
        at_most: The maximum number of seconds, for any deadline.

    Raises:
        DeadlineExceeded: The deadline has passed before the call.
        Unavailable: NATS is unavailable, full, or too slow.
    """
    try:
        seconds = deadline.timeout(at_most)
    except DeadlineExceeded:
        operation.close()  # Python warns about a coroutine that was never awaited
        raise
    labels = {"causeway.what": what.removeprefix("The ")}
    begin = time.perf_counter()
    try:
        # Not `wait_for`, which loses a cancellation that arrives together with the result (Python 3.11).
        async with asyncio.timeout(seconds):
            return await operation
    except (KeyNotFoundError, ObjectNotFoundError):
        raise
    except (TimeoutError, OSError, nats.errors.Error, nats.js.errors.Error) as error:
        labels["error.type"] = "Unavailable"
        if is_full(error):
            raise Unavailable(f"{what} is full. Try again later.", retry_after=30) from error
        raise Unavailable(f"{what} cannot be reached. Try again shortly.", retry_after=2) from error
    finally:
        _calls.record(time.perf_counter() - begin, labels)
