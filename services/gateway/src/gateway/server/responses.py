"""Sends complete answers as ASGI messages, for raw ASGI routes and middleware."""

from collections.abc import Callable, Mapping, Sequence

from servicekit.errors import CausewayError, Unauthenticated, http_status
from starlette.types import Scope, Send

JSON = b"application/json"

Header = tuple[bytes, bytes]
NOSNIFF: Header = (b"x-content-type-options", b"nosniff")
"""Forbids browsers to guess another media type (Fetch standard)."""

STREAM_HEADERS: Sequence[Header] = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"), NOSNIFF)
"""The headers of a stream. Caches and nginx must pass each piece on immediately."""

BREAK_OFF = "causeway.break_off"
"""The ASGI extension whose `close` closes the connection of an incomplete response."""

ErrorBody = Callable[[Scope, CausewayError], bytes]
"""Renders the body of an error in the dialect of a request."""


def error_headers(error: CausewayError) -> list[Header]:
    """Return the headers of an error, without those that describe the body."""
    headers: list[Header] = []
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % max(1, round(error.retry_after))))
    if isinstance(error, Unauthenticated):
        headers.append((b"www-authenticate", _challenge(error.details)))
    if allowed := error.details.get("allow"):
        headers.append((b"allow", allowed.encode()))
    quotas = (item for item in error.details.items() if item[0].startswith("x-ratelimit-"))
    headers += [(name.encode(), value.encode()) for name, value in quotas]
    return headers


def _challenge(details: Mapping[str, str]) -> bytes:
    """Return a challenge (RFC 6750, 3; RFC 9728, 5.1). Only a request with a credential gets an error code."""
    members = {"error": details.get("challenge"), "resource_metadata": details.get("resource_metadata")}
    parameters = "".join(f', {name}="{value}"' for name, value in members.items() if value)
    return b'Bearer realm="causeway"' + parameters.encode("latin-1", "replace")


async def refuse(send: Send, error: CausewayError, body: bytes, status: int | None = None) -> None:
    """Send a JSON body with the status of an error, or with another status."""
    await respond(send, status or http_status(error), JSON, body, error_headers(error))


async def respond(send: Send, status: int, media: bytes, body: bytes, headers: Sequence[Header] = ()) -> None:
    """Send a complete response."""
    start = [(b"content-type", media), (b"content-length", b"%d" % len(body)), NOSNIFF, *headers]
    await send({"type": "http.response.start", "status": status, "headers": start})
    await send({"type": "http.response.body", "body": body})


def break_off(scope: Scope) -> None:
    """Close the connection of an incomplete response after the sent bytes are delivered.

    A server without the extension closes the connection when the application returns.
    """
    extension = scope.get("extensions", {}).get(BREAK_OFF)
    if extension is not None:
        extension["close"]()
