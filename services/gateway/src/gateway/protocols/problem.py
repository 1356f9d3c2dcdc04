"""The error body of every route that has no dialect of its own, and of OpenAI's."""

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
_SERVER_FAULT = 500


def problem(error: CausewayError) -> bytes:
    """``{"error": {message, type, param, code}, "detail": message}``; a model server's own body goes as it came."""
    if isinstance(error, UpstreamRejected):
        return error.body.encode()
    row = errors.row_of(error)
    kind = "server_error" if row.http >= _SERVER_FAULT else _TYPES.get(row.http, "invalid_request_error")
    return msgspec.json.encode(
        {
            "error": {
                "message": error.message,
                "type": kind,
                "param": error.field,
                "code": row.reason.lower(),
            },
            "detail": error.message,
        }
    )
