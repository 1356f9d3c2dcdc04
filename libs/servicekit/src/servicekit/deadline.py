"""Deadlines of requests. The entry point sets a deadline once; calls to other services may only shorten it."""

import math
import time
from dataclasses import dataclass
from typing import Any

import grpc

from servicekit.errors import DeadlineExceeded


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time by which a request must end, on the monotonic clock."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """Return the deadline that is ``seconds`` from now."""
        return cls(time.monotonic() + seconds)

    @classmethod
    def of(cls, context: "grpc.aio.ServicerContext[Any, Any]") -> "Deadline":
        """Return the deadline of a gRPC call; infinite if the call has none."""
        left = context.time_remaining()
        return cls(math.inf) if left is None else cls.after(left)

    def remaining(self) -> float:
        """Return the remaining seconds.

        Raises:
            DeadlineExceeded: No time remains.
        """
        left = self.at - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded("The request took longer than its deadline.")
        return left

    def timeout(self, max_seconds: float = math.inf) -> float | None:
        """Return the time-out of the next call: the remaining seconds, but not more than ``max_seconds``.

        The result is None for an infinite time-out, as gRPC and asyncio expect.

        Raises:
            DeadlineExceeded: No time remains.
        """
        seconds = min(self.remaining(), max_seconds)
        return None if math.isinf(seconds) else seconds
