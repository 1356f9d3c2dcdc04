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

    def remaining(self, at_most: float = math.inf) -> float:
        """Return the remaining seconds, but not more than ``at_most``, as a time-out for the next call.

        Raises:
            DeadlineExceeded: No time remains.
        """
        left = self.at - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded("The request took longer than its deadline.")
        return min(left, at_most)

    def timeout(self, at_most: float = math.inf) -> float | None:
        """Return `remaining`, or None if it is infinite, because gRPC and asyncio expect None for no time-out.

        Raises:
            DeadlineExceeded: No time remains.
        """
        left = self.remaining(at_most)
        return None if math.isinf(left) else left
