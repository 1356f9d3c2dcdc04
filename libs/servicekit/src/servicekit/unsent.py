"""Retries of calls that have not reached any server. Such a call is safe to repeat."""

import asyncio
import time

import grpc
from grpc.aio import AioRpcError

from servicekit.deadline import Deadline

RETRY_SECONDS = 1.2
"""Seconds for the retries. gRPC resolves a name at most twice a second (`channel`), and then connects. With a
longer time, callers would not get the error of an unavailable service within two seconds."""
_PAUSE = 0.1
_ATTEMPT_SECONDS = 0.5  # the duration of gRPC's own retries of a unary call
# gRPC's messages for a call without any connection. gRPC has another message for a connection that broke during a
# call, and a service that refuses a call sends its own details.
_NO_CONNECTION = ("connections to all backends failing", "errors resolving ", "empty address list")


class UnsentRetry:
    """Decides whether a call may be repeated, after a pause.

    After the replacement of the last pod of a service, calls find no server for a moment. The new pod exists, but
    the channel has not yet resolved the name again.

    Args:
        deadline: The deadline of the call with all its retries.
    """

    def __init__(self, deadline: Deadline) -> None:
        self._end = min(time.monotonic() + RETRY_SECONDS, deadline.at - _ATTEMPT_SECONDS)

    async def after(self, error: AioRpcError) -> bool:
        """Wait and return True if no server got the call and another attempt is possible before the deadline."""
        if not is_unsent(error) or time.monotonic() + _PAUSE >= self._end:
            return False
        await asyncio.sleep(_PAUSE)
        return True


def is_unsent(error: AioRpcError) -> bool:
    """Return whether gRPC found no connection for a call, and therefore sent nothing."""
    return error.code() is grpc.StatusCode.UNAVAILABLE and (error.details() or "").startswith(_NO_CONNECTION)
