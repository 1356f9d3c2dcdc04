"""The conversion of a model server's failures to errors of the platform."""

import email.utils
import time

import pytest
from generator.openai.errors import refused, unreachable
from servicekit.errors import DeadlineExceeded, Unavailable


@pytest.mark.parametrize(
    ("value", "seconds"), [("7", 7.0), ("0.5", 0.5), ("-3", 0.0), ("soon", None), ("inf", None), ("", None)]
)
def test_retry_after_may_be_a_number_of_seconds(value: str, seconds: float | None) -> None:
    """A number means seconds. Any other text is ignored."""
    assert refused(429, {"retry-after": value}, b"").retry_after == seconds


def test_retry_after_may_be_a_date() -> None:
    """A date becomes the seconds until then."""
    header = email.utils.formatdate(time.time() + 30, usegmt=True)
    wait = refused(503, {"retry-after": header}, b"").retry_after
    assert wait is not None
    assert 27 < wait < 31


def test_status_and_body_are_kept() -> None:
    """A refusal keeps the status and the body, and replaces invalid bytes."""
    error = refused(418, {}, b"\xffteapot")
    assert (error.status, error.body) == (418, "\ufffdteapot")


def test_a_time_out_is_distinguished_from_a_refused_connection() -> None:
    """The cause of the library's error distinguishes a time-out from a refused connection."""
    slow, down = RuntimeError("library"), RuntimeError("library")
    slow.__cause__ = TimeoutError()
    down.__cause__ = ConnectionRefusedError()
    assert isinstance(unreachable(slow, 1), DeadlineExceeded)
    assert isinstance(unreachable(down, 1), Unavailable)
