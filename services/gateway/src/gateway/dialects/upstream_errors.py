"""Converts the errors of a model server to errors of the gateway, for the RAG chat protocol and for agents.

Clients of OpenAI's API receive the model server's status and message. `orchestrator.errors` converts the errors
for clients of the guardrails orchestrator's API. Other clients would interpret a 401 as a failure of their own
authentication, and a 500 as an error of the gateway.
"""

import contextlib

import msgspec
from servicekit.errors import (
    CausewayError,
    DeadlineExceeded,
    InvalidRequest,
    RateLimited,
    Unavailable,
    UpstreamRejected,
)

_INVALID_STATUSES = (400, 413, 422)
_TIMEOUT_STATUSES = (408, 504)
_RATE_LIMITED = 429
_MAX_MESSAGE_LENGTH = 1000


class _Message(msgspec.Struct):
    message: str


class _Nested(msgspec.Struct):
    error: _Message


def client_error(error: CausewayError) -> CausewayError:
    """Return the error for a client; only a model server's error changes."""
    if not isinstance(error, UpstreamRejected):
        return error
    converted: CausewayError
    if error.status in _INVALID_STATUSES:
        converted = InvalidRequest(message_of(error.body)[:_MAX_MESSAGE_LENGTH] or error.message)
    elif error.status == _RATE_LIMITED:
        converted = RateLimited(
            "The model server receives too many requests. Try again later.", retry_after=error.retry_after or 1
        )
    elif error.status in _TIMEOUT_STATUSES:
        converted = DeadlineExceeded("The model server did not answer in time.")
    else:
        converted = Unavailable("The model server is unavailable. Try again later.", retry_after=error.retry_after)
    converted.__cause__ = error
    return converted


def message_of(body: str) -> str:
    """Return the message of a model server's error, or an empty string if its format is unknown.

    The known formats are OpenAI's ``{"error": {"message": …}}``, and ``{"message": …}``.
    """
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(body, type=_Nested).error.message
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return msgspec.json.decode(body, type=_Message).message
    return ""
