"""The error body of OpenAI's routes and of every route without a dialect."""

from collections.abc import Mapping

import msgspec
from servicekit import errors
from servicekit.errors import CausewayError, UpstreamRejected

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
SERVER_ERROR = 500
"""The lowest HTTP status of a server error (5xx)."""

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def problem(error: CausewayError, names: Mapping[str, str] | None = None) -> bytes:
    """Return ``{"error": {message, type, param, code}, "detail": message}``, on one line.

    If the error is a model server's JSON object, return this object.

    Args:
        error: The error.
        names: Maps a field's name in the services to its name in the request, for fields whose names differ.
    """
    if isinstance(error, UpstreamRejected) and (upstream := _object_of(error.body.encode())):
        return upstream
    row = errors.row_of(error)
    status = errors.http_status(error)
    kind = "server_error" if status >= SERVER_ERROR else _TYPES.get(status, "invalid_request_error")
    return msgspec.json.encode(
        {
            "error": {
                "message": error.message,
                "type": kind,
                "param": (names or {}).get(error.field or "", error.field),
                "code": row.reason.lower(),
            },
            "detail": error.message,
        }
    )


def _object_of(body: bytes) -> bytes:
    """Return a JSON object on one line, or empty bytes if the body is not a JSON object."""
    try:
        _object.decode(body)
    except (ValueError, RecursionError):
        return b""
    return one_line(body)


def one_line(json: bytes) -> bytes:
    """Return the JSON without line breaks, which would end an event or a JSON line."""
    return b" ".join(json.splitlines()) if b"\n" in json or b"\r" in json else json
