"""The errors of calls to a Qdrant node."""

import structlog
from grpc import StatusCode
from grpc.aio import AioRpcError
from servicekit.errors import CausewayError, DeadlineExceeded, Unavailable

_log = structlog.get_logger(__name__)

_UNREACHABLE = (StatusCode.UNAVAILABLE, StatusCode.CANCELLED, StatusCode.DEADLINE_EXCEEDED)
_FAILING = (
    StatusCode.INTERNAL,
    StatusCode.ABORTED,
    # The current state of a shard or of the storage does not permit the call.
    StatusCode.FAILED_PRECONDITION,
    StatusCode.DATA_LOSS,
    StatusCode.UNKNOWN,
    # A recovering node may not find one of its shards or points.
    StatusCode.NOT_FOUND,
)
_REFUSED = (StatusCode.UNAUTHENTICATED, StatusCode.PERMISSION_DENIED)


class Missing(Exception):
    """The collection does not exist."""


class Transient(Exception):
    """An attempt failed, but another node, or the same node later, may succeed.

    Attributes:
        error: The error for the caller if no other attempt succeeds.
        is_response: Whether the node has responded with a code in `_FAILING`. Then a second attempt at the same
            node may succeed.
    """

    def __init__(self, error: CausewayError, *, is_response: bool = False) -> None:
        super().__init__(error.message)
        self.error = error
        self.is_response = is_response


def translated(error: AioRpcError) -> Missing | Transient | Unavailable:
    """Return the exception to raise for the gRPC error of a call."""
    code, details = error.code(), error.details() or ""
    if code is StatusCode.NOT_FOUND and "ollection" in details:
        return Missing()
    if code is StatusCode.DEADLINE_EXCEEDED:
        return Transient(DeadlineExceeded("The Qdrant server did not answer in time."))
    if code in _UNREACHABLE:
        return Transient(Unavailable("The Qdrant server cannot be reached.", retry_after=1))
    if code in _FAILING:
        failure = Unavailable("The Qdrant server fails at the moment. Its log has the reason.", retry_after=1)
        return Transient(failure, is_response=True)
    if code in _REFUSED:
        # One node of a cluster may have another key.
        return Transient(Unavailable("The Qdrant server refuses the API key.", retry_after=30))
    if code is StatusCode.RESOURCE_EXHAUSTED:
        return Transient(Unavailable("The Qdrant server is busy."))
    if "already exists" in details:  # another process was faster
        return Unavailable("The Qdrant collection exists already.")
    _log.error("the qdrant server refuses a call", code=code.name, details=details)
    return Unavailable("The Qdrant server refuses the call.", retry_after=30)
