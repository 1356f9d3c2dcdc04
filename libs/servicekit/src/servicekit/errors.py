"""The hierarchy of the error classes, and the table of their wire representations.

CausewayError
├── InvalidRequest              the request is wrong; names the field
│   ├── PayloadTooLarge
│   ├── TargetTooLong
│   ├── HeadersTooLarge
│   ├── UnsupportedMedia
│   ├── Unprocessable           well-formed, but not accepted by the route
│   └── UnreadableDocument      a document that cannot be ingested
├── Unauthenticated
├── PermissionDenied
├── NotFound                    names the resource; resources of other tenants do not exist for the caller
├── MethodNotAllowed
├── Conflict
│   └── StaleGeneration         a newer generation of the document is stored
├── Blocked                     blocked by guardrails
├── RateLimited                 over a quota, or a bounded queue is full; may contain the time until a retry
├── DeadlineExceeded
├── Cancelled                   the caller cancelled the call
├── NotSupported                known, but not offered by this deployment
│   └── HttpVersionNotSupported
├── Unavailable                 a dependency is unavailable; contains the time until a retry
├── UpstreamRejected            a model server refused; contains its status and body
├── BrokenOff                   the answer failed after it had begun; a retry costs tokens again
└── Internal                    a defect; the client gets no internal details

Messages are for the client: they name the field or the resource, and never contain a stack trace, a secret or a
path of the server. The cause is ``__cause__`` and goes to the log.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from grpc import StatusCode


class CausewayError(Exception):
    """The base class of all errors that a client may see.

    Args:
        message: What is wrong, for the client.
        field: Path of the wrong field of the request, for example ``messages[0].role``.
        resource: Name of the resource that the error is about.
        retry_after: Seconds after which a retry makes sense; None: the default of the class.
        details: Further machine-readable facts, under names other than ``field``, ``resource`` and ``retry_after``.
    """

    DEFAULT_RETRY_AFTER: ClassVar[float | None] = None

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        resource: str | None = None,
        retry_after: float | None = None,
        details: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.resource = resource
        self.retry_after = self.DEFAULT_RETRY_AFTER if retry_after is None else retry_after
        self.details: dict[str, str] = dict(details or {})


class InvalidRequest(CausewayError):
    """The request is wrong, so a retry does not help."""


class PayloadTooLarge(InvalidRequest):
    """The request is larger than a limit."""


class TargetTooLong(InvalidRequest):
    """The target of the request, its path and query, is too long."""


class HeadersTooLarge(InvalidRequest):
    """The request line and the headers are too large, or there are too many headers."""


class UnsupportedMedia(InvalidRequest):
    """The media type of the request is not supported."""


class Unprocessable(InvalidRequest):
    """The request is well-formed but invalid; for routes whose clients expect the status 422 instead of 400."""


class UnreadableDocument(InvalidRequest):
    """A document is broken, encrypted, empty, or of a type other than its name indicates."""


class Unauthenticated(CausewayError):
    """The credentials are missing or wrong."""


class PermissionDenied(CausewayError):
    """The caller may not do this."""


class NotFound(CausewayError):
    """The resource does not exist for this caller."""


class MethodNotAllowed(CausewayError):
    """The route exists, but not for this HTTP method."""


class Conflict(CausewayError):
    """The request conflicts with the current state."""


class StaleGeneration(Conflict):
    """A newer generation of the document is already stored."""


class Blocked(CausewayError):
    """Guardrails stopped the request."""


class RateLimited(CausewayError):
    """The caller exceeds a quota, or a bounded queue is full."""


class DeadlineExceeded(CausewayError):
    """The deadline passed."""


class Cancelled(CausewayError):
    """The caller cancelled the call."""


class NotSupported(CausewayError):
    """The deployment does not offer this request."""


class HttpVersionNotSupported(NotSupported):
    """The HTTP version of the request is not supported."""


class Unavailable(CausewayError):
    """A dependency cannot be reached; a later retry makes sense, by default after a second."""

    DEFAULT_RETRY_AFTER = 1.0


class UpstreamRejected(CausewayError):
    """A model server refused. OpenAI's API forwards its ``status`` and ``body``; other APIs have other bodies."""

    def __init__(self, message: str, *, status: int, body: str, retry_after: float | None = None) -> None:
        super().__init__(
            message, retry_after=retry_after, details={"upstream_status": str(status), "upstream_body": body}
        )

    @property
    def status(self) -> int:
        """The model server's HTTP status."""
        return int(self.details["upstream_status"])

    @property
    def body(self) -> str:
        """The model server's response body. The gateway removes text to which detectors object."""
        return self.details["upstream_body"]


class BrokenOff(CausewayError):
    """The answer failed after it had begun. A retry costs tokens again, so clients must not retry."""


class Internal(CausewayError):
    """A defect. The message never has internal details."""

    MESSAGE: ClassVar[str] = (
        "The service encountered an unexpected error. The log has the details under this trace id."
    )

    def __init__(self) -> None:
        super().__init__(self.MESSAGE)


@dataclass(frozen=True, slots=True)
class Row:
    """The wire representation of an error class."""

    error: type[CausewayError]
    code: StatusCode
    http: int
    reason: str


TABLE: tuple[Row, ...] = (
    Row(InvalidRequest, StatusCode.INVALID_ARGUMENT, 400, "INVALID_REQUEST"),
    Row(PayloadTooLarge, StatusCode.INVALID_ARGUMENT, 413, "PAYLOAD_TOO_LARGE"),
    Row(TargetTooLong, StatusCode.INVALID_ARGUMENT, 414, "TARGET_TOO_LONG"),
    Row(HeadersTooLarge, StatusCode.INVALID_ARGUMENT, 431, "HEADERS_TOO_LARGE"),
    Row(UnsupportedMedia, StatusCode.INVALID_ARGUMENT, 415, "UNSUPPORTED_MEDIA"),
    Row(Unprocessable, StatusCode.INVALID_ARGUMENT, 422, "UNPROCESSABLE"),
    Row(UnreadableDocument, StatusCode.INVALID_ARGUMENT, 422, "UNREADABLE_DOCUMENT"),
    Row(Unauthenticated, StatusCode.UNAUTHENTICATED, 401, "UNAUTHENTICATED"),
    Row(PermissionDenied, StatusCode.PERMISSION_DENIED, 403, "PERMISSION_DENIED"),
    Row(NotFound, StatusCode.NOT_FOUND, 404, "NOT_FOUND"),
    Row(MethodNotAllowed, StatusCode.UNIMPLEMENTED, 405, "METHOD_NOT_ALLOWED"),
    Row(Conflict, StatusCode.FAILED_PRECONDITION, 409, "CONFLICT"),
    Row(StaleGeneration, StatusCode.FAILED_PRECONDITION, 409, "STALE_GENERATION"),
    Row(Blocked, StatusCode.FAILED_PRECONDITION, 400, "BLOCKED"),
    Row(RateLimited, StatusCode.RESOURCE_EXHAUSTED, 429, "RATE_LIMITED"),
    Row(DeadlineExceeded, StatusCode.DEADLINE_EXCEEDED, 504, "DEADLINE_EXCEEDED"),
    Row(Cancelled, StatusCode.CANCELLED, 499, "CANCELLED"),
    Row(NotSupported, StatusCode.UNIMPLEMENTED, 501, "NOT_SUPPORTED"),
    Row(HttpVersionNotSupported, StatusCode.UNIMPLEMENTED, 505, "HTTP_VERSION_NOT_SUPPORTED"),
    Row(Unavailable, StatusCode.UNAVAILABLE, 503, "UNAVAILABLE"),
    Row(UpstreamRejected, StatusCode.FAILED_PRECONDITION, 502, "UPSTREAM_REJECTED"),
    # Not a 5xx status, because clients retry those automatically and must not retry this one.
    Row(BrokenOff, StatusCode.ABORTED, 424, "BROKEN_OFF"),
    Row(Internal, StatusCode.INTERNAL, 500, "INTERNAL"),
)

_BY_CLASS: dict[type, Row] = {row.error: row for row in TABLE}
_BY_REASON = {row.reason: row for row in TABLE}
# The classes for codes that gRPC itself raises, without a reason of the table.
_BY_CODE: dict[StatusCode, type[CausewayError]] = {
    StatusCode.INVALID_ARGUMENT: InvalidRequest,
    StatusCode.OUT_OF_RANGE: InvalidRequest,
    StatusCode.UNAUTHENTICATED: Unauthenticated,
    StatusCode.PERMISSION_DENIED: PermissionDenied,
    StatusCode.NOT_FOUND: NotFound,
    StatusCode.ALREADY_EXISTS: Conflict,
    StatusCode.ABORTED: Conflict,
    StatusCode.FAILED_PRECONDITION: Conflict,
    StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    # A cancellation by this side is an asyncio cancellation; this code comes from a stopping server.
    StatusCode.CANCELLED: Unavailable,
    StatusCode.UNIMPLEMENTED: NotSupported,
    StatusCode.UNAVAILABLE: Unavailable,
    StatusCode.RESOURCE_EXHAUSTED: Unavailable,
}


def row_of(error: CausewayError) -> Row:
    """Return the table's row for the class of an error, or for its nearest base class."""
    return next((_BY_CLASS[base] for base in type(error).__mro__ if base in _BY_CLASS), _BY_CLASS[Internal])


def http_status(error: CausewayError) -> int:
    """Return the HTTP status for the client. An error status of a model server is unchanged."""
    if isinstance(error, UpstreamRejected) and 400 <= error.status <= 599:
        return error.status
    return row_of(error).http


def build(reason: str | None, code: StatusCode, message: str, facts: Mapping[str, str]) -> CausewayError:
    """Return the error for a reason or, if the reason is not in the table, for a gRPC code.

    Args:
        reason: A reason of the table; None if the peer sent none.
        code: The gRPC status code.
        message: The peer's message. It is used only with a known reason, because other messages may contain
            internal details.
        facts: ``field``, ``resource``, ``retry_after`` and further details.
    """
    row = _BY_REASON.get(reason) if reason else None
    if row is None:
        error = _BY_CODE.get(code)
        return Internal() if error is None else error(_GENERIC[error])
    if row.error is Internal:
        return Internal()
    details = dict(facts)
    retry_after = _seconds(details.pop("retry_after", None))
    if row.error is UpstreamRejected:
        status = details.get("upstream_status", "")
        return UpstreamRejected(
            message,
            status=int(status) if status.isdecimal() else row.http,
            body=details.get("upstream_body", ""),
            retry_after=retry_after,
        )
    field, resource = details.pop("field", None), details.pop("resource", None)
    return row.error(message, field=field, resource=resource, retry_after=retry_after, details=details)


def facts_of(error: CausewayError) -> dict[str, str]:
    """Return the ``facts`` for `build`, the most important ones first."""
    own = {"field": error.field, "resource": error.resource}
    facts = {name: value for name, value in own.items() if value is not None}
    if error.retry_after is not None:
        facts["retry_after"] = repr(float(error.retry_after))
    return facts | error.details


def _seconds(text: str | None) -> float | None:
    # A peer of another version may send an unknown form, which must not hide the error itself.
    try:
        seconds = float(text) if text else None
    except ValueError:
        return None
    return seconds if seconds is not None and math.isfinite(seconds) and seconds >= 0 else None


_GENERIC: dict[type[CausewayError], str] = {
    InvalidRequest: "A service refused the request as malformed.",
    Unauthenticated: "A service refused the platform's credentials.",
    PermissionDenied: "A service refused access.",
    NotFound: "The resource does not exist.",
    Conflict: "The request conflicts with the current state.",
    DeadlineExceeded: "The request took longer than its deadline.",
    NotSupported: "A service does not offer this.",
    Unavailable: "A service that is needed for the answer cannot be reached. Try again shortly.",
}
