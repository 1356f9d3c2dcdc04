"""The errors of the guardrails orchestrator's routes."""

import json

import pytest
from gateway.dialects.orchestrator import errors
from gateway.domain import Action, Detector, DetectorFailure, Detectors, Direction
from gateway.frontends.profiles import GuardrailsWire
from servicekit.errors import (
    CausewayError,
    DeadlineExceeded,
    Internal,
    InvalidRequest,
    NotFound,
    Unavailable,
    Unprocessable,
    UnsupportedMedia,
    UpstreamRejected,
    http_status,
)

ADR, REFERENCE = GuardrailsWire.ADR, GuardrailsWire.ORCHESTRATOR
FAILED = errors.DetectorFailed(DetectorFailure("hap", "detector request failed for `hap`: busy", 429))


@pytest.mark.parametrize(
    ("error", "adr", "reference"),
    [
        (InvalidRequest("`n` is wrong."), 422, 422),
        (errors.NotJson("no"), 400, 400),
        (Unprocessable("no"), 422, 422),
        (NotFound("no"), 404, 404),
        (UnsupportedMedia("no"), 415, 415),
        (FAILED, 429, 500),
        (errors.DetectorFailed(DetectorFailure("hap", "no", 503)), 503, 503),
        (UpstreamRejected("no", status=503, body=""), 503, 503),
        (errors.DetectorFailed(DetectorFailure("hap", "no")), 500, 500),
        (errors.DetectorFailed(DetectorFailure("hap", "no", 422)), 422, 422),
        (DeadlineExceeded("late"), 504, 500),
        (Unavailable("away"), 503, 500),
        (Internal(), 500, 500),
    ],
)
def test_status_code_and_client_error_agree(error: CausewayError, adr: int, reference: int) -> None:
    """The status, the code of the body and the raised error agree, for both wire formats."""
    for wire, status in ((ADR, adr), (REFERENCE, reference)):
        assert errors.status(error, wire) == status
        assert json.loads(errors.body(error, wire))["code"] == status
        assert http_status(errors.client_error(error, wire)) == status


def test_the_reference_hides_unexpected_errors() -> None:
    """The reference's error names neither the detector nor the reason."""
    assert json.loads(errors.body(FAILED, REFERENCE))["details"] == errors.UNEXPECTED
    assert json.loads(errors.body(FAILED))["details"] == "detector request failed for `hap`: busy"


@pytest.mark.parametrize(
    "body",
    [
        '{"object":"error","message":"not like this","code":400}',
        '{"error":{"message":"not like this"}}',
        "not like this",
    ],
)
def test_a_model_servers_message_is_quoted(body: str) -> None:
    """The error quotes the message from each known format of model servers' errors."""
    error = UpstreamRejected("refused", status=400, body=body)
    error.resource = "m"
    details = json.loads(errors.body(error, request_name="chat completion"))["details"]
    assert details == "chat completion request failed for `m`: not like this"


def test_an_allowed_failure_is_ignored() -> None:
    """A detector's failure is ignored only in the direction in which the request allows it."""
    allowed = Detectors(output=(Detector("hap", Action.REPORT, allow_on_error=True),))
    failures = (DetectorFailure("hap", "no", 503),)
    errors.check_failures(failures, Direction.OUTPUT, allowed)
    with pytest.raises(errors.DetectorFailed, match="no"):
        errors.check_failures(failures, Direction.INPUT, allowed)


@pytest.mark.parametrize("action", list(Action))
def test_a_detector_without_context(action: Action) -> None:
    """If a detector has no context to judge, the answer continues if the detector only reports or may fail.

    Otherwise the gateway refuses the request with 422.
    """
    failures = (DetectorFailure("grounded", "no passages", 422, not_asked=True),)
    errors.check_failures(
        failures, Direction.OUTPUT, Detectors(output=(Detector("grounded", action, allow_on_error=True),))
    )
    strict = Detectors(output=(Detector("grounded", action),))
    if action is Action.REPORT:
        errors.check_failures(failures, Direction.OUTPUT, strict)
    else:
        with pytest.raises(errors.DetectorFailed, match="failed for `grounded`: no passages") as caught:
            errors.check_failures(failures, Direction.OUTPUT, strict)
        assert (errors.status(caught.value), errors.status(caught.value, REFERENCE)) == (422, 422)
