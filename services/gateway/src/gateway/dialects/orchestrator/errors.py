"""The errors of the guardrails orchestrator's routes: ``{"code": status, "details": text}``, one table of status.

A request that is JSON but not what the route takes is 422. What a detector or a model server says keeps its
status, behind words that say who said it; the reference orchestrator tells what is not plainly the request's fault
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
"""All that the reference says of what is not the request's fault."""

_UNPROCESSABLE = 422
_NO_STATUS = 500
# Of what others say, the reference keeps these.
_KEPT = (400, 404, 422, 503)
_SERVER_FAULT = 500


class NotJson(InvalidRequest):
    """The body is no JSON: the one wrong request that is a 400."""


class DetectorFailed(UpstreamRejected):
    """A detector failed, and the request does not go on without it."""

    def __init__(self, failure: DetectorFailure) -> None:
        prefix = f"detector request failed for `{failure.detector_id}`: "
        # Remote ones say so themselves.
        message = prefix + failure.message.removeprefix(prefix)
        super().__init__(message, status=failure.status or _NO_STATUS, body="")


class Unexpected(Internal):
    """What the reference says no more of."""


def check_failures(failures: tuple[DetectorFailure, ...], direction: Direction, detectors: Detectors) -> None:
    """Nothing where the answer goes on without the detectors that failed.

    Raises:
        DetectorFailed: One of them may not be passed over.
    """
    for failure in failures:
        asked = getattr(detectors, direction.value)
        if not any(each.detector_id == failure.detector_id and _goes_on(each, failure) for each in asked):
            raise DetectorFailed(failure)


def _goes_on(detector: Detector, failure: DetectorFailure) -> bool:
    # One that only reports had nothing to report on.
    return detector.allow_on_error or (failure.not_asked and detector.action is Action.REPORT)


def status(error: CausewayError, wire: GuardrailsWire = GuardrailsWire.ADR) -> int:
    """The status that an error has on these routes."""
    if type(error) is InvalidRequest:
        return _UNPROCESSABLE
    code = http_status(error)
    if wire is GuardrailsWire.ORCHESTRATOR and _unexpected(error, code):
        return _NO_STATUS
    return code


def body(error: CausewayError, wire: GuardrailsWire = GuardrailsWire.ADR, *, asked: str = "") -> bytes:
    """The body of an error.

    Args:
        error: What is wrong.
        wire: Whose ways.
        asked: What a model was asked for, where one was: ``chat completion``.
    """
    code = status(error, wire)
    if wire is GuardrailsWire.ORCHESTRATOR and _unexpected(error, http_status(error)):
        return msgspec.json.encode({"code": code, "details": UNEXPECTED})
    return msgspec.json.encode({"code": code, "details": _details(error, asked)})


def as_raised(error: CausewayError, wire: GuardrailsWire) -> CausewayError:
    """The error, with the status that it has on these routes as its own; its body says the same."""
    if wire is GuardrailsWire.ORCHESTRATOR and _unexpected(error, http_status(error)):
        return Unexpected()
    return unprocessable(error)


def unprocessable(error: CausewayError) -> CausewayError:
    """The error as these routes raise it: what is wrong with a request, and no other, is 422."""
    if type(error) is not InvalidRequest:
        return error
    return Unprocessable(error.message, field=error.field, resource=error.resource)


def _unexpected(error: CausewayError, code: int) -> bool:
    if isinstance(error, UpstreamRejected):
        return code not in _KEPT
    return code >= _SERVER_FAULT or isinstance(error, Internal)


def _details(error: CausewayError, asked: str) -> str:
    if isinstance(error, UnsupportedMedia):
        return "Expected request with `Content-Type: application/json`"
    if not isinstance(error, UpstreamRejected) or isinstance(error, DetectorFailed):
        return error.message
    said = words(error.body) or error.body or error.message
    return f"{asked} request failed for `{error.resource or ''}`: {said}" if asked else said
