"""Errors across gRPC: packed as google.rpc.Status with an ErrorInfo, unpacked to the same class.

An error travels in the call's trailing metadata, whose size both sides limit (`channel.SIZE_OPTIONS`): what is
over the limit arrives as another error, so everything is bounded here, in bytes. A model server's error page may be
long, and a character takes up to four bytes, or twelve where gRPC percent-encodes it.
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
LONGEST_MESSAGE = 4096
"""Bytes of a message that arrive."""
LONGEST_FACT = 8192
"""Bytes of one fact (a field's path, a model server's answer) that arrive."""
_LONGEST_FACTS = 16 * 1024
_LONGEST_PLAIN = 1024  # gRPC's own message, for peers that know nothing of the details
_TRAILER = "grpc-status-details-bin"


def pack(error: CausewayError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, bytes], ...]]:
    """Code, message and trailing metadata for ``context.abort``."""
    row = errors.row_of(error)
    info = error_details_pb2.ErrorInfo(reason=row.reason, domain=DOMAIN)
    left = _LONGEST_FACTS
    for name, value in errors.facts_of(error).items():
        left -= len(name)
        if left <= 0:
            break
        kept = bounded(value, min(LONGEST_FACT, left))
        info.metadata[name] = kept
        left -= len(kept.encode())
    message = bounded(error.message, LONGEST_MESSAGE)
    status = status_pb2.Status(code=row.code.value[0], message=message)
    status.details.add().Pack(info)
    return row.code, bounded(message, _LONGEST_PLAIN), ((_TRAILER, status.SerializeToString()),)


def bounded(text: str, most: int) -> str:
    """The beginning of a text that takes no more than ``most`` bytes of UTF-8; what has no UTF-8 becomes ``?``."""
    # A character is at least a byte: the slice spares encoding what is cut off anyway.
    return text[:most].encode(errors="replace")[:most].decode(errors="ignore")


def unpack(error: AioRpcError) -> CausewayError:
    """The error that the other side raised; for what gRPC itself raised, the table's class for its code."""
    for name, value in error.trailing_metadata() or ():
        if name == _TRAILER and isinstance(value, bytes):
            known = _from_details(value, error.code())
            if known is not None:
                return known
    details = error.details() or ""
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "message larger than max" in details:
        # gRPC has one code for a full server and for a message that will never fit.
        request = details.startswith(("CLIENT: Sent", "SERVER: Received"))
        return PayloadTooLarge("The request is too large.") if request else Internal()
    failure = errors.build(None, error.code(), details, {})
    if isinstance(failure, Internal):
        # It comes from gRPC, not from the service, and so nobody else has logged it: what came was no gRPC, say.
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
