"""Converts failures of a Triton server to Causeway's errors."""

import grpc
import msgspec
import structlog
from servicekit.errors import (
    CausewayError,
    DeadlineExceeded,
    InvalidRequest,
    RateLimited,
    Unavailable,
    UpstreamRejected,
)

_log = structlog.get_logger(__name__)
_MAX_MESSAGE_LENGTH = 2000
_SERVER_FAULT = 500
_CODES: dict[grpc.StatusCode, type[CausewayError]] = {
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.CANCELLED: Unavailable,
    grpc.StatusCode.ABORTED: Unavailable,
    grpc.StatusCode.RESOURCE_EXHAUSTED: RateLimited,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
}


def failure(code: grpc.StatusCode | None, message: str, model: str, *, begun: bool) -> CausewayError:
    """Return the error for a failure of the server.

    Args:
        code: The gRPC status; None if the server sent only a message.
        message: The server's message. The log always contains it. The returned error contains it only if it is an
            `InvalidRequest` or `UpstreamRejected`.
        model: The name of the model on the server.
        begun: Whether the server had begun to answer. If so, the request was valid, and the server caused the
            failure.
    """
    _log.warning(
        "call to the Triton server failed", model=model, code=code.name if code else "", reason=message, begun=begun
    )
    kind = _CODES.get(code) if code else None
    if begun and kind is not DeadlineExceeded:
        return Unavailable("The model server failed before its answer was complete.")
    if kind is InvalidRequest:
        return InvalidRequest(f"The model refused the request: {message[:_MAX_MESSAGE_LENGTH]}")
    if code is grpc.StatusCode.NOT_FOUND or (code is None and "unknown model" in message):
        # The configuration names the model, but the server has not loaded it.
        return Unavailable(f"The Triton server has not loaded the model '{model}'.", resource=model)
    if kind is RateLimited:
        return RateLimited("The model server is busy; try again later.")
    if kind is DeadlineExceeded:
        return DeadlineExceeded("The model server did not answer in time.")
    if kind is Unavailable:
        return Unavailable("The model server cannot be reached, or the model is not ready.")
    return UpstreamRejected("The model server failed.", status=_SERVER_FAULT, body=_body(message))


def unreadable() -> Unavailable:
    """Return the error for an answer that cannot be decoded."""
    return Unavailable("The model server sent an answer that cannot be read.")


def _body(message: str) -> str:
    error = {"message": message[:_MAX_MESSAGE_LENGTH], "type": "server_error", "param": None, "code": None}
    return msgspec.json.encode({"error": error}).decode()
