import json

import pytest
from gateway.dialects.problem import one_line, problem
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
def test_both_kinds_of_clients_can_read_it(error: CausewayError, kind: str, code: str) -> None:
    """OpenAI's clients read ``error``, others ``detail``."""
    assert json.loads(problem(error)) == {
        "error": {"message": "x", "type": kind, "param": error.field, "code": code},
        "detail": "x",
    }


def test_a_defect_says_nothing_of_the_inside() -> None:
    """Only that there was one."""
    assert json.loads(problem(Internal()))["detail"] == Internal.MESSAGE


def test_a_model_servers_own_body_is_kept_on_one_line() -> None:
    """Byte for byte, but for line breaks, which would end an event."""
    error = UpstreamRejected("refused", status=429, body='{\n "error": {"message": "slow \\n down"}\r\n}')
    assert problem(error) == b'{  "error": {"message": "slow \\n down"} }'


@pytest.mark.parametrize(
    "body", ["", "<html>busy</html>", "[1]", '{"cut off', "\ud800".encode("utf-8", "replace").decode()]
)
def test_what_is_no_json_object_is_not_passed_on(body: str) -> None:
    """A page of HTML or a cut-off body: our own shape, with the type of the model server's status."""
    error = UpstreamRejected("The model server refused with status 503.", status=503, body=body)
    assert json.loads(problem(error))["error"]["type"] == "server_error"
    assert json.loads(problem(error))["detail"] == error.message


def test_one_line_leaves_what_is_one() -> None:
    """The very same object, where there is nothing to do."""
    raw = b'{"a":"b"}'
    assert one_line(raw) is raw
