"""Calls that have not reached any server. They are safe to repeat once the name is resolved again."""

import asyncio
import time

import grpc
from grpc.aio import AioRpcError

from servicekit.deadline import Deadline

SECONDS = 1.2
"""gRPC resolves a name again at most twice a second (`channel`), and then connects. A longer time would delay the
error for a service that is away, which callers get within two seconds."""
_PAUSE = 0.1
_TRY = 0.5  # the time that gRPC's own retries of a unary call take to fail
# gRPC's messages for a call without any connection. The message for a connection that broke during a call is
# another one, and a service that refuses sends its own details.
_NOBODY = ("connections to all backends failing", "errors resolving ", "empty address list")


class UnsentRetry:
    """Decides whether a call may be repeated, after a pause.

    When the last pod that a channel knows is replaced, the new pod already exists, but the channel has not resolved
    the name again. For a moment, calls find no server.

    Args:
        deadline: The deadline of the call with all its retries.
    """

    def __init__(self, deadline: Deadline) -> None:
        self._end = min(time.monotonic() + SECONDS, deadline.at - _TRY)

    async def after(self, error: AioRpcError) -> bool:
        """Wait a moment and return True if no server got the call and there is time for another attempt."""
        if not is_unsent(error) or time.monotonic() + _PAUSE >= self._end:
            return False
        await asyncio.sleep(_PAUSE)
        return True


def is_unsent(error: AioRpcError) -> bool:
    """Return whether gRPC found no connection for a call, so that nothing of it was sent."""
    return error.code() is grpc.StatusCode.UNAVAILABLE and (error.details() or "").startswith(_NOBODY)
