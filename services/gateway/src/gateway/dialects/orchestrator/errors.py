"""The errors of the guardrails orchestrator's routes: ``{"code": status, "details": text}``.

The status of an invalid request is 422. It is 400 if the body is not JSON, or if a policy applies and a message has
an unknown role.
With `GuardrailsWire.ADR` (the format of the orchestrator's architecture decision record), an error of a detector or
a model server keeps its status, and its message names the detector or the model. With
`GuardrailsWire.ORCHESTRATOR`, most errors that the request did not cause have the status 500 and the message
`UNEXPECTED`, as in the reference implementation.
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

from gateway.dialects.problem import SERVER_ERROR
from gateway.dialects.upstream_errors import message_of
from gateway.domain import Action, Detector, DetectorFailure, Detectors, Direction
from gateway.frontends.profiles import GuardrailsWire

UNEXPECTED = "unexpected error occurred while processing request"
"""The reference implementation's message for errors that the request did not cause."""

_UNPROCESSABLE = 422
_INTERNAL_ERROR = 500
# The reference implementation forwards these statuses of other servers.
_FORWARDED_STATUSES = (400, 404, 422, 503)


class NotJson(InvalidRequest):
    """The body is not JSON. The status is 400, unlike the status of other invalid requests."""


class DetectorFailed(UpstreamRejected):
    """A detector failed, and the request cannot continue without it."""

    def __init__(self, failure: DetectorFailure) -> None:
        prefix = f"detector request failed for `{failure.detector_id}`: "
        # The messages of remote detectors already have the prefix.
        message = prefix + failure.message.removeprefix(prefix)
        super().__init__(message, status=failure.status or _INTERNAL_ERROR, body="")


class Unexpected(Internal):
    """An error whose details the reference implementation hides."""


def check_failures(failures: tuple[DetectorFailure, ...], direction: Direction, detectors: Detectors) -> None:
    """Check that the answer may continue without the detectors that failed.

    Raises:
        DetectorFailed: The answer must not continue without a detector that failed.
    """
    for failure in failures:
        configured = getattr(detectors, direction.value)
        if not any(
            detector.detector_id == failure.detector_id and _may_fail(detector, failure) for detector in configured
        ):
            raise DetectorFailed(failure)


def _may_fail(detector: Detector, failure: DetectorFailure) -> bool:
    # A detector that compares the text with passages is not called if the request has no passages. If its action is
    # only to report, the answer does not need its findings.
    return detector.allow_on_error or (failure.not_asked and detector.action is Action.REPORT)


def status(error: CausewayError, wire: GuardrailsWire = GuardrailsWire.ADR) -> int:
    """Return the HTTP status of an error on these routes."""
    if type(error) is InvalidRequest:
        return _UNPROCESSABLE
    code = http_status(error)
    if wire is GuardrailsWire.ORCHESTRATOR and _is_unexpected(error, code):
        return _INTERNAL_ERROR
    return code


def body(error: CausewayError, wire: GuardrailsWire = GuardrailsWire.ADR, *, request_name: str = "") -> bytes:
    """Return the body of an error.

    Args:
        error: The error.
        wire: The wire format of the API.
        request_name: The name of the model server's API in the message, such as ``chat completion``, or empty if
            the route calls no model server.
    """
    code = status(error, wire)
    if wire is GuardrailsWire.ORCHESTRATOR and _is_unexpected(error, http_status(error)):
        return msgspec.json.encode({"code": code, "details": UNEXPECTED})
    return msgspec.json.encode({"code": code, "details": _details(error, request_name)})


def client_error(error: CausewayError, wire: GuardrailsWire) -> CausewayError:
    """Convert an error to an error whose `http_status` is the `status` of these routes."""
    if wire is GuardrailsWire.ORCHESTRATOR and _is_unexpected(error, http_status(error)):
        return Unexpected()
    return unprocessable(error)


def unprocessable(error: CausewayError) -> CausewayError:
    """Convert an invalid request to an error with status 422."""
    if type(error) is not InvalidRequest:
        return error
    return Unprocessable(error.message, field=error.field, resource=error.resource)


def _is_unexpected(error: CausewayError, code: int) -> bool:
    if isinstance(error, UpstreamRejected):
        return code not in _FORWARDED_STATUSES
    return code >= SERVER_ERROR or isinstance(error, Internal)


def _details(error: CausewayError, request_name: str) -> str:
    if isinstance(error, UnsupportedMedia):
        return "Expected request with `Content-Type: application/json`"
    if not isinstance(error, UpstreamRejected) or isinstance(error, DetectorFailed):
        return error.message
    message = message_of(error.body) or error.body or error.message
    return f"{request_name} request failed for `{error.resource or ''}`: {message}" if request_name else message
