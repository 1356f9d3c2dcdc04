"""The conversion of a model server's failures to errors of the platform."""

from generator.openai.errors import refused, unreachable
from servicekit.errors import DeadlineExceeded, Unavailable


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
