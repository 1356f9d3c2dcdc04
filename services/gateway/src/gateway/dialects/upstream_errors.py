"""A model server's errors in the RAG chat protocol: each becomes a text and a status of this protocol.

OpenAI's clients get the model server's own status and body. Clients of this protocol would read its 401 as an error
of their own sign-in, and its 500 as an error of the gateway.
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

_WRONG = (400, 413, 422)
_TOO_LATE = (408, 504)
_TOO_OFTEN = 429
_LONGEST = 1000


class _Message(msgspec.Struct):
    message: str


class _Nested(msgspec.Struct):
    error: _Message


def translated(error: CausewayError) -> CausewayError:
    """Return the error for a client; only a model server's refusal is translated."""
    if not isinstance(error, UpstreamRejected):
        return error
    refusal: CausewayError
    if error.status in _WRONG:
        refusal = InvalidRequest(words(error.body)[:_LONGEST] or error.message)
    elif error.status == _TOO_OFTEN:
        refusal = RateLimited("The model gets too many requests.", retry_after=error.retry_after or 1)
    elif error.status in _TOO_LATE:
        refusal = DeadlineExceeded("The model took too long.")
    else:
        refusal = Unavailable("The model cannot answer at the moment.", retry_after=error.retry_after)
    refusal.__cause__ = error
    return refusal


def words(body: str) -> str:
    """Return the message of a model server's refusal in OpenAI's format; else an empty text."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(body, type=_Nested).error.message
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        return msgspec.json.decode(body, type=_Message).message
    return ""
