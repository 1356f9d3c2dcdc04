"""The errors of the guardrails orchestrator's routes: ``{"code": status, "details": text}``, one table of status.

A JSON request that the route does not accept is 422. An error of a detector or a model server keeps its status, and
its message names the source. The reference orchestrator reports all errors that are not clearly the request's fault
as a 500.
"""

import msgspec
from servicekit.errors import (
    CausewayError,
    Internal,
    InvalidRequest,
    Unprocessable,
    UnsupportedMedia,
    UpstreamRejected,
    http_status,
)

from gateway.dialects.upstream_errors import words
from gateway.domain import Action, Detector, DetectorFailure, Detectors, Direction
from gateway.frontends.profiles import GuardrailsWire

UNEXPECTED = "unexpected error occurred while processing request"
"""The reference's message for errors that are not the request's fault."""

_UNPROCESSABLE = 422
_NO_STATUS = 500
# The statuses of other servers that the reference keeps.
_KEPT = (400, 404, 422, 503)
_SERVER_FAULT = 500


class NotJson(InvalidRequest):
    """The body is not JSON: the only invalid request with status 400."""


class DetectorFailed(UpstreamRejected):
    """A detector failed, and the request cannot continue without it."""

    def __init__(self, failure: DetectorFailure) -> None:
        prefix = f"detector request failed for `{failure.detector_id}`: "
        # Remote detectors add the prefix themselves.
        message = prefix + failure.message.removeprefix(prefix)
        super().__init__(message, status=failure.status or _NO_STATUS, body="")


class Unexpected(Internal):
    """An error whose details the reference hides."""


def check_failures(failures: tuple[DetectorFailure, ...], direction: Direction, detectors: Detectors) -> None:
    """Check that the answer may continue without the detectors that failed.

    Raises:
        DetectorFailed: One of them is not allowed to fail.
    """
    for failure in failures:
        configured = getattr(detectors, direction.value)
        if not any(each.detector_id == failure.detector_id and _goes_on(each, failure) for each in configured):
            raise DetectorFailed(failure)


def _goes_on(detector: Detector, failure: DetectorFailure) -> bool:
    # A detector that only reports had nothing to judge.
    return detector.allow_on_error or (failure.not_asked and detector.action is Action.REPORT)


def status(error: CausewayError, wire: GuardrailsWire = GuardrailsWire.ADR) -> int:
    """Return the status of an error on these routes."""
    if type(error) is InvalidRequest:
        return _UNPROCESSABLE
    code = http_status(error)
    if wire is GuardrailsWire.ORCHESTRATOR and _unexpected(error, code):
        return _NO_STATUS
    return code


def body(error: CausewayError, wire: GuardrailsWire = GuardrailsWire.ADR, *, request_name: str = "") -> bytes:
    """Return the body of an error.

    Args:
        error: The error.
        wire: The variant of the API.
        request_name: The name of the request to a model, such as ``chat completion``; empty without one.
    """
    code = status(error, wire)
    if wire is GuardrailsWire.ORCHESTRATOR and _unexpected(error, http_status(error)):
        return msgspec.json.encode({"code": code, "details": UNEXPECTED})
    return msgspec.json.encode({"code": code, "details": _details(error, request_name)})


def as_raised(error: CausewayError, wire: GuardrailsWire) -> CausewayError:
    """Return the error with its status on these routes, which its body repeats."""
    if wire is GuardrailsWire.ORCHESTRATOR and _unexpected(error, http_status(error)):
        return Unexpected()
    return unprocessable(error)


def unprocessable(error: CausewayError) -> CausewayError:
    """Return the error as raised by these routes: an invalid request becomes a 422."""
    if type(error) is not InvalidRequest:
        return error
    return Unprocessable(error.message, field=error.field, resource=error.resource)


def _unexpected(error: CausewayError, code: int) -> bool:
    if isinstance(error, UpstreamRejected):
        return code not in _KEPT
    return code >= _SERVER_FAULT or isinstance(error, Internal)


def _details(error: CausewayError, request_name: str) -> str:
    if isinstance(error, UnsupportedMedia):
        return "Expected request with `Content-Type: application/json`"
    if not isinstance(error, UpstreamRejected) or isinstance(error, DetectorFailed):
        return error.message
    message = words(error.body) or error.body or error.message
    return f"{request_name} request failed for `{error.resource or ''}`: {message}" if request_name else message
