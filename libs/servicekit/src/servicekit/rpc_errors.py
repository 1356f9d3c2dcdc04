"""Errors across gRPC: packed as google.rpc.Status with an ErrorInfo, unpacked to the same class."""

import grpc
from google.rpc import error_details_pb2, status_pb2
from grpc.aio import AioRpcError

from servicekit import errors
from servicekit.errors import CausewayError

DOMAIN = "causeway"
_TRAILER = "grpc-status-details-bin"
# Trailers share the peer's limit on metadata (8 KiB by default), and a model server's error page may be long.
_LONGEST_DETAIL = 4096


def pack(error: CausewayError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, bytes], ...]]:
    """Code, message and trailing metadata for ``context.abort``."""
    row = errors.row_of(error)
    info = error_details_pb2.ErrorInfo(reason=row.reason, domain=DOMAIN)
    for name, value in errors.facts_of(error).items():
        info.metadata[name] = value[:_LONGEST_DETAIL]
    message = error.message[:_LONGEST_DETAIL]
    status = status_pb2.Status(code=row.code.value[0], message=message)
    status.details.add().Pack(info)
    return row.code, message, ((_TRAILER, status.SerializeToString()),)


def unpack(error: AioRpcError) -> CausewayError:
    """The error that the other side raised; for what gRPC itself raised, the table's class for its code."""
    for name, value in error.trailing_metadata() or ():
        if name == _TRAILER and isinstance(value, bytes):
            status = status_pb2.Status.FromString(value)
            for detail in status.details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info) and info.domain == DOMAIN:
                    return errors.build(info.reason, error.code(), status.message, dict(info.metadata))
    return errors.build(None, error.code(), error.details() or "", {})
