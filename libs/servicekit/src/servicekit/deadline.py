"""Deadlines: a point in time that is set once, at the edge, and only shrinks on its way down."""

import math
import time
from dataclasses import dataclass
from typing import Any

import grpc

from servicekit.errors import DeadlineExceeded


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a request must be over, on the monotonic clock."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> "Deadline":
        """The deadline that lies so many seconds ahead."""
        return cls(time.monotonic() + seconds)

    @classmethod
    def of(cls, context: "grpc.aio.ServicerContext[Any, Any]") -> "Deadline":
        """The deadline that a gRPC call came with; infinitely late where it came with none."""
        left = context.time_remaining()
        return cls(math.inf) if left is None else cls.after(left)

    def remaining(self, at_most: float = math.inf) -> float:
        """Seconds that are left, as a time-out for the next call.

        Raises:
            DeadlineExceeded: None are left.
        """
        left = self.at - time.monotonic()
        if left <= 0:
            raise DeadlineExceeded("The request took longer than its deadline.")
        return min(left, at_most)

    def timeout(self, at_most: float = math.inf) -> float | None:
        """`remaining`, with None for an infinite one, as gRPC and asyncio take it."""
        left = self.remaining(at_most)
        return None if math.isinf(left) else left
