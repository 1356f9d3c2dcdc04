"""Create a stream or bucket of NATS on first use, and create it again if NATS has lost it."""

import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import structlog
from nats.aio.client import Client
from servicekit.errors import Unavailable
from servicekit.stream_limits import is_full

from gateway.clients.nats_calls import NATS_FAILURES

_log = structlog.get_logger(__name__)
_CHECK_SECONDS = 5.0
"""Seconds for which a stream or bucket is used without a check that it exists."""
T = TypeVar("T")


class NatsResource(Generic[T]):
    """A stream or bucket that the gateway creates on first use.

    At most every five seconds, a use checks that the stream or bucket exists. If NATS has lost it, for example with
    a disk, the check creates it again.

    The background tasks for quotas and period keys do not use this class. They create a missing bucket before each
    watch, and log each new failure once.

    Args:
        target: The name of the stream or bucket in messages.
        create: Creates the stream or bucket if it is missing, and returns it.
    """

    def __init__(self, target: str, create: Callable[[Client], Awaitable[T]]) -> None:
        self.target = target
        self._create = create
        self._resource: T | None = None
        self._checked_at = -float("inf")

    async def get(self, client: Client) -> T:
        """Return the stream or bucket.

        Raises:
            Unavailable: NATS did not create the stream or bucket, because it is full or cannot be reached.
        """
        now = time.monotonic()
        if self._resource is not None and now - self._checked_at < _CHECK_SECONDS:
            return self._resource
        checked_at, self._checked_at = self._checked_at, now  # concurrent calls do not check again
        try:
            self._resource = await self._create(client)
        except BaseException as error:
            self._checked_at = checked_at
            if not isinstance(error, (Unavailable, *NATS_FAILURES)):
                raise
            problem = space_problem(error)
            # If only the check fails, do not log it, because each request may repeat the failed check.
            if problem or self._resource is None:
                _log.warning("a stream or bucket cannot be created", target=self.target, error=str(error))
            if problem:
                raise Unavailable(f"{self.target} cannot be created. {problem}", retry_after=30) from error
            raise unreachable(self.target) from error
        return self._resource


def space_problem(error: BaseException) -> str:
    """Return the reason if NATS has no space for a stream or bucket, or an empty string after another failure.

    Args:
        error: The failure of the creation. `Unavailable` means that NATS has no space.
    """
    if isinstance(error, Unavailable):
        return error.message
    return "NATS is full. Give JetStream more space (max_file_store)." if is_full(error) else ""


def unreachable(target: str) -> Unavailable:
    """Return the error for clients if a stream or bucket cannot be reached."""
    return Unavailable(f"{target} cannot be reached. Try again shortly.", retry_after=2)
