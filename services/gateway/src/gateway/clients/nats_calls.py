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
from servicekit.stream_limits import is_full

_calls = metrics.durations(
    __name__, "causeway.nats.call.duration", "Duration of calls to NATS in seconds, by target and error."
)
T = TypeVar("T")
NATS_FAILURES = (TimeoutError, OSError, nats.errors.Error, nats.js.errors.Error)
"""The errors of a call to NATS that failed."""


async def call_nats(
    operation: Coroutine[Any, Any, T], deadline: Deadline, target: str, max_seconds: float = 30.0
) -> T:
    """Await a call to NATS until the deadline, and return its result.

    Errors about a missing key or object are raised unchanged. All other errors of NATS become `Unavailable`, so the
    coroutine must itself handle those that are part of its protocol, such as the error for an outdated revision.

    Args:
        operation: The coroutine of the call.
        deadline: The time by which the call must end.
        target: The name of the store or queue, for errors and metrics. The number of names must be small, because
            each name has its own time series.
        max_seconds: The maximum number of seconds, even if the deadline is later.

    Raises:
        DeadlineExceeded: The deadline passed before the call.
        Unavailable: NATS is unavailable, full, or too slow.
    """
    try:
        seconds = deadline.timeout(max_seconds)
    except DeadlineExceeded:
        operation.close()  # Python warns about a coroutine that was never awaited
        raise
    labels = {"causeway.what": target.removeprefix("The ")}
    begin = time.perf_counter()
    try:
        # Not `wait_for`, which loses a cancellation that arrives together with the result (Python 3.11).
        async with asyncio.timeout(seconds):
            return await operation
    except (KeyNotFoundError, ObjectNotFoundError):
        raise
    except NATS_FAILURES as error:
        labels["error.type"] = "Unavailable"
        if is_full(error):
            raise Unavailable(f"{target} is full. Try again later.", retry_after=30) from error
        raise Unavailable(f"{target} cannot be reached. Try again shortly.", retry_after=2) from error
    finally:
        _calls.record(time.perf_counter() - begin, labels)
