"""Converts failures of a model server to Causeway's errors."""

from collections.abc import Mapping

from servicekit.errors import DeadlineExceeded, Unavailable, UpstreamRejected
from servicekit.http_headers import retry_after

from generator.ports import too_slow

# This is enough for a JSON error. A longer body is usually a page of HTML.
MAX_ERROR_BYTES = 64 * 1024


def bad_answer(what: str) -> Unavailable:
    """Return the error for an answer that is incomplete or cannot be used.

    Args:
        what: The predicate of the sentence "The model server …".
    """
    return Unavailable(f"The model server {what}.")


def refused(status: int, headers: Mapping[str, str], body: bytes) -> UpstreamRejected:
    """Return the error for a refusal; the client gets the model server's body unchanged."""
    return UpstreamRejected(
        f"The model server refused with status {status}.",
        status=status,
        body=body.decode("utf-8", "replace"),
        retry_after=retry_after(headers),
    )


def redirected(status: int) -> Unavailable:
    """Return the error for a redirect, which the client of model servers never follows."""
    return Unavailable(
        f"The model server redirects (status {status}); configure the URL that the server redirects to."
    )


def unreachable(error: Exception, timeout: float) -> Unavailable | DeadlineExceeded:
    """Return the error for a connection that failed before the answer.

    The chain of causes shows whether a time-out caused the failure.

    Args:
        error: The exception of the HTTP client.
        timeout: The time-out for the connection in seconds.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, TimeoutError):
            return too_slow(timeout, "did not accept a connection")
        cause = cause.__cause__
    return Unavailable("The model server cannot be reached.", retry_after=1)
