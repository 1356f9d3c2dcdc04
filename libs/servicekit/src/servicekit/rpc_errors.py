"""Packs errors for gRPC as google.rpc.Status with an ErrorInfo, and unpacks them to the same class.

The call's trailing metadata contain the error. Both sides limit the size of metadata (`channel.SIZE_OPTIONS`). gRPC
would replace a larger error with another one, so this module limits all parts, in bytes. A model server's error
page may be long. A character has up to four bytes, or twelve if gRPC percent-encodes it.
"""

import grpc
import structlog
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc.aio import AioRpcError

from servicekit import errors
from servicekit.errors import CausewayError, Internal, PayloadTooLarge

_log = structlog.get_logger(__name__)

DOMAIN = "causeway"
MAX_ERROR_MESSAGE_BYTES = 4096
"""Limit of a message, in bytes."""
MAX_FACT_BYTES = 8192
"""Limit of one fact, in bytes. A fact is a detail of an error, such as a field's path or a server's response."""
_MAX_FACTS_BYTES = 16 * 1024
_MAX_PLAIN_BYTES = 1024  # gRPC's own message, for peers that do not read the details
_TRAILER = "grpc-status-details-bin"


def pack(error: CausewayError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, bytes], ...]]:
    """Return the code, the message and the trailing metadata for ``context.abort``."""
    row = errors.row_of(error)
    info = error_details_pb2.ErrorInfo(reason=row.reason, domain=DOMAIN)
    left = _MAX_FACTS_BYTES
    for name, value in errors.facts_of(error).items():
        left -= len(name)
        if left <= 0:
            break
        truncated = truncate(value, min(MAX_FACT_BYTES, left))
        info.metadata[name] = truncated
        left -= len(truncated.encode())
    message = truncate(error.message, MAX_ERROR_MESSAGE_BYTES)
    status = status_pb2.Status(code=row.code.value[0], message=message)
    status.details.add().Pack(info)
    return row.code, truncate(message, _MAX_PLAIN_BYTES), ((_TRAILER, status.SerializeToString()),)


def truncate(text: str, max_bytes: int) -> str:
    """Return the beginning of a text, at most ``max_bytes`` bytes of UTF-8; invalid characters become ``?``."""
    # A character has at least one byte, so the slice avoids the encoding of a long text.
    return text[:max_bytes].encode(errors="replace")[:max_bytes].decode(errors="ignore")


def unpack(error: AioRpcError) -> CausewayError:
    """Return the error that the service raised. If gRPC raised it, return an error of the class for its code."""
    for name, value in error.trailing_metadata() or ():
        if name == _TRAILER and isinstance(value, bytes):
            unpacked = _from_details(value, error.code())
            if unpacked is not None:
                return unpacked
    details = error.details() or ""
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "message larger than max" in details:
        # gRPC uses the same code for an overloaded server and for a message above the size limit.
        request = details.startswith(("CLIENT: Sent", "SERVER: Received"))
        return PayloadTooLarge("The request is too large.") if request else Internal()
    failure = errors.build(None, error.code(), details, {})
    if isinstance(failure, Internal):
        # gRPC itself raised the error, for example because the response was not gRPC. No service has logged it.
        _log.warning("a call failed within gRPC", code=error.code().name, error=details)
    return failure


def _from_details(value: bytes, code: grpc.StatusCode) -> CausewayError | None:
    info = error_details_pb2.ErrorInfo()
    try:
        status = status_pb2.Status.FromString(value)
        for detail in status.details:
            if detail.Unpack(info) and info.domain == DOMAIN:
                return errors.build(info.reason, code, status.message, info.metadata)
    except DecodeError:
        return None
    return None
