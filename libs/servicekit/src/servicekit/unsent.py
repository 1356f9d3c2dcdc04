"""Calls that no server has got: whatever they do, they may be made again once the name is resolved afresh."""

import asyncio
import time

import grpc
from grpc.aio import AioRpcError

from servicekit.deadline import Deadline

SECONDS = 1.2
"""gRPC resolves a name again at most twice a second (`channel`), and connects then. Longer would keep those waiting
who ask for a service that is away: they are told within two seconds."""
_PAUSE = 0.1
_TRY = 0.5  # gRPC's own tries of a unary call take so long to fail
# What gRPC says where it had no connection to give a call to. Of a connection that broke under a call it says other
# words, and a service that refuses sends details of its own.
_NOBODY = ("connections to all backends failing", "errors resolving ", "empty address list")


class UnsentRetry:
    """Says whether a call may be made again, after a pause.

    When the last pod that a channel knows of goes, its successor is there already, but the channel has not resolved
    the name since: the calls of these moments find nobody.

    Args:
        deadline: Of the call with all its tries.
    """

    def __init__(self, deadline: Deadline) -> None:
        self._end = min(time.monotonic() + SECONDS, deadline.at - _TRY)

    async def after(self, error: AioRpcError) -> bool:
        """Wait a moment and return True where no server got the call and there is time for another try."""
        if not is_unsent(error) or time.monotonic() + _PAUSE >= self._end:
            return False
        await asyncio.sleep(_PAUSE)
        return True


def is_unsent(error: AioRpcError) -> bool:
    """Return whether gRPC found no connection for a call, so that nothing of it was sent."""
    return error.code() is grpc.StatusCode.UNAVAILABLE and (error.details() or "").startswith(_NOBODY)
