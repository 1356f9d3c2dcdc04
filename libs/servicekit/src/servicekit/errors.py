"""The one tree of errors, and the one table that says what each becomes on the wire.

CausewayError
├── InvalidRequest              what the caller sent is wrong; names the field
│   ├── PayloadTooLarge
│   ├── HeadersTooLarge
│   ├── UnsupportedMedia
│   ├── Unprocessable           well-formed, and not what the route takes
│   └── UnreadableDocument      a document that cannot be ingested
├── Unauthenticated
├── PermissionDenied
├── NotFound                    names the resource; another tenant's resource does not exist, either
├── MethodNotAllowed
├── Conflict
│   └── StaleGeneration         a newer version of the document is there
├── Blocked                     guardrails stopped it
├── RateLimited                 over a quota; says when to come back
├── DeadlineExceeded
├── Cancelled                   the caller left
├── NotSupported                known, but not offered here
│   └── HttpVersionNotSupported
├── Unavailable                 a dependency is down; says when to come back
├── UpstreamRejected            a model server's own refusal, status and body kept
├── BrokenOff                   failed in mid-answer; asking again costs again
└── Internal                    a defect; the client learns nothing of the inside

Messages are written for the client: they name the field or the resource and never hold a stack trace, a secret
or a path of the server. The cause travels as ``__cause__`` and goes to the log.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from grpc import StatusCode


class CausewayError(Exception):
    """Base of all errors that a client may see.

    Args:
        message: What is wrong, in words for the client.
        field: Path of the request's field that is wrong, for example ``messages[0].role``.
        resource: Name of the resource that the error is about.
        retry_after: Seconds after which a retry makes sense.
        details: Further facts for machines, under other names than ``field``, ``resource`` and ``retry_after``.
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
    """The request is wrong and will stay so."""


class PayloadTooLarge(InvalidRequest):
    """The request is larger than a limit."""


class HeadersTooLarge(InvalidRequest):
    """The request's line and headers are larger than a limit, or too many."""


class UnsupportedMedia(InvalidRequest):
    """The request's media type is not one that is read here."""


class Unprocessable(InvalidRequest):
    """The request is well-formed and not what the route takes, where clients tell that from other mistakes."""


class UnreadableDocument(InvalidRequest):
    """A document is broken, encrypted, empty, or not what its name says."""


class Unauthenticated(CausewayError):
    """No credentials, or wrong ones."""


class PermissionDenied(CausewayError):
    """The caller may not do this."""


class NotFound(CausewayError):
    """The resource does not exist, or not for this caller."""


class MethodNotAllowed(CausewayError):
    """The route exists, but not for this HTTP method."""


class Conflict(CausewayError):
    """The request contradicts the present state."""


class StaleGeneration(Conflict):
    """A newer generation of the document is stored already."""


class Blocked(CausewayError):
    """Guardrails stopped the request."""


class RateLimited(CausewayError):
    """Over a quota, or a bounded queue is full."""


class DeadlineExceeded(CausewayError):
    """The deadline passed."""


class Cancelled(CausewayError):
    """The caller gave up."""


class NotSupported(CausewayError):
    """A known request that this deployment does not offer."""


class HttpVersionNotSupported(NotSupported):
    """The request's version of HTTP is not one that is spoken here."""


class Unavailable(CausewayError):
    """A dependency cannot be reached; trying again later makes sense, in a second where nobody knows better."""

    DEFAULT_RETRY_AFTER = 1.0


class UpstreamRejected(CausewayError):
    """A model server refused; ``status`` and ``body`` are its own and go to the client as they are."""

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
        """The model server's answer, as it came."""
        return self.details["upstream_body"]


class BrokenOff(CausewayError):
    """The answer had begun when it failed. Not to be retried without thought: what was spent is spent."""


class Internal(CausewayError):
    """A defect. Its message is the same whatever happened inside."""

    MESSAGE: ClassVar[str] = "The service met an unexpected error. The log has the details under this trace id."

    def __init__(self) -> None:
        super().__init__(self.MESSAGE)


@dataclass(frozen=True, slots=True)
class Row:
    """What an error class becomes on the wire."""

    error: type[CausewayError]
    code: StatusCode
    http: int
    reason: str


TABLE: tuple[Row, ...] = (
    Row(InvalidRequest, StatusCode.INVALID_ARGUMENT, 400, "INVALID_REQUEST"),
    Row(PayloadTooLarge, StatusCode.INVALID_ARGUMENT, 413, "PAYLOAD_TOO_LARGE"),
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
    # No 5xx: clients that repeat those by themselves must not repeat this one.
    Row(BrokenOff, StatusCode.ABORTED, 424, "BROKEN_OFF"),
    Row(Internal, StatusCode.INTERNAL, 500, "INTERNAL"),
)

_BY_CLASS = {row.error: row for row in TABLE}
_BY_REASON = {row.reason: row for row in TABLE}
# Codes that gRPC itself raises, without a reason of ours.
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
    # Our own cancellation is asyncio's; this one is of a server that ends.
    StatusCode.CANCELLED: Unavailable,
    StatusCode.UNIMPLEMENTED: NotSupported,
    StatusCode.UNAVAILABLE: Unavailable,
    StatusCode.RESOURCE_EXHAUSTED: Unavailable,
}


def _mro(error: type[CausewayError]) -> Iterator[type[CausewayError]]:
    for base in error.__mro__:
        if issubclass(base, CausewayError):
            yield base


def row_of(error: CausewayError) -> Row:
    """The table's row for an error: its own class's, else that of the nearest base class."""
    for base in _mro(type(error)):
        row = _BY_CLASS.get(base)
        if row is not None:
            return row
    return _BY_CLASS[Internal]


def http_status(error: CausewayError) -> int:
    """The HTTP status that a client gets; a model server's own status is kept where it is one of an error."""
    if isinstance(error, UpstreamRejected) and 400 <= error.status <= 599:
        return error.status
    return row_of(error).http


def build(reason: str | None, code: StatusCode, message: str, facts: Mapping[str, str]) -> CausewayError:
    """The error that stands for a reason, or, where the reason is not ours, for a gRPC code.

    Args:
        reason: A reason of the table, if the wire carried one.
        code: The gRPC status code.
        message: The wire's message; used only where the reason is ours, because other messages tell of the inside.
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
    """What `build` needs besides reason, code and message, the most important first."""
    own = {"field": error.field, "resource": error.resource}
    facts = {name: value for name, value in own.items() if value is not None}
    if error.retry_after is not None:
        facts["retry_after"] = repr(float(error.retry_after))
    return facts | error.details


def _seconds(text: str | None) -> float | None:
    # What a peer of another version may have written is no reason to lose the error itself.
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
    Conflict: "The request contradicts the present state.",
    DeadlineExceeded: "The request took longer than its deadline.",
    NotSupported: "A service does not offer this.",
    Unavailable: "A service that is needed for the answer cannot be reached. Try again shortly.",
}
