import json

import pytest
from gateway.dialects.problem import problem
from servicekit.errors import (
    CausewayError,
    DeadlineExceeded,
    Internal,
    InvalidRequest,
    NotFound,
    RateLimited,
    Unavailable,
    UpstreamRejected,
)


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (InvalidRequest("x", field="f"), "invalid_request_error", "invalid_request"),
        (NotFound("x"), "not_found_error", "not_found"),
        (RateLimited("x"), "rate_limit_error", "rate_limited"),
        (Unavailable("x"), "server_error", "unavailable"),
        (DeadlineExceeded("x"), "server_error", "deadline_exceeded"),
    ],
)
def test_the_body_has_both_formats(error: CausewayError, kind: str, code: str) -> None:
    """OpenAI's clients read `error`, and other clients read `detail`."""
    assert json.loads(problem(error)) == {
        "error": {"message": "x", "type": kind, "param": error.field, "code": code},
        "detail": "x",
    }


def test_an_internal_error_has_a_general_message() -> None:
    """The message of an internal error has no details."""
    assert json.loads(problem(Internal()))["detail"] == Internal.MESSAGE


def test_a_model_servers_own_body_is_sent_on_one_line() -> None:
    """The body remains unchanged, except for line breaks, which would end an event."""
    error = UpstreamRejected("refused", status=429, body='{\n "error": {"message": "slow \\n down"}\r\n}')
    assert problem(error) == b'{  "error": {"message": "slow \\n down"} }'


@pytest.mark.parametrize(
    "body", ["", "<html>busy</html>", "[1]", '{"cut off', "\ud800".encode("utf-8", "replace").decode()]
)
def test_other_bodies_are_replaced(body: str) -> None:
    """The gateway replaces a body that is not a JSON object. The type follows from the model server's status."""
    error = UpstreamRejected("The model server refused with status 503.", status=503, body=body)
    assert json.loads(problem(error))["error"]["type"] == "server_error"
    assert json.loads(problem(error))["detail"] == error.message
