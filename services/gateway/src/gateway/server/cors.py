"""The ASGI middleware for cross-origin requests of browsers (Fetch standard). Profiles list the allowed origins.

Responses to other origins have no CORS headers, so a browser hides the response from the page. The gateway does not
use cookies, so it never allows credentials.
"""

from servicekit.errors import InvalidRequest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.frontends.profiles import ANY_ORIGIN, Frontend
from gateway.server.request_state import state_of

_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE"
# OpenAI's clients for browsers send many headers of their own (`x-stainless-…`), and their list grows. The wildcard
# does not cover `authorization`. The other names are for browsers that do not know the wildcard.
_ALLOWED = (
    b"authorization, api-key, x-api-key, content-type, last-event-id, traceparent, x-ms-useragent, x-priority, "
    b"mcp-protocol-version, mcp-session-id, mcp-method, mcp-name, *"
)
_EXPOSED = (
    b"retry-after, x-trace-id, x-request-id, www-authenticate, mcp-session-id, server-timing, "
    b"x-causeway-dropped-tools, x-causeway-dropped-items, "
    b"x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    b"x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)
_PREFLIGHT_SECONDS = b"600"
_VARY = (b"vary", b"origin")


class CorsHeaders:
    """Adds the CORS headers to every response, including errors, because the layer is outside `Tracing`.

    Args:
        app: The inner application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        frontend = state_of(scope).frontend if scope["type"] == "http" else None
        if frontend is None or not (frontend.origins or frontend.cors):
            await self._app(scope, receive, send)
            return
        added = _headers(frontend, _header(scope, b"origin"))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        await self._app(scope, receive, send_with_headers)


class Preflight:
    """Answers preflight requests of browsers, outside authentication, because preflights have no credentials.

    Args:
        app: The inner application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            InvalidRequest: The profile does not allow the origin.
        """
        if (
            scope["type"] != "http"
            or scope["method"] != "OPTIONS"
            or not _header(scope, b"access-control-request-method")
        ):
            await self._app(scope, receive, send)
            return
        origin = _header(scope, b"origin")
        if not state_of(scope).frontend.allows_origin(origin.decode("latin-1")):
            raise InvalidRequest("This front end does not allow calls from this origin.", field="origin")
        headers = [
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-allow-headers", _ALLOWED),
            (b"access-control-max-age", _PREFLIGHT_SECONDS),
        ]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})


def _headers(frontend: Frontend, origin: bytes) -> list[tuple[bytes, bytes]]:
    if ANY_ORIGIN in frontend.cors:
        return [(b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", _EXPOSED)]
    if not origin or not frontend.allows_origin(origin.decode("latin-1")):
        return [_VARY]
    return [
        (b"access-control-allow-origin", origin),
        (b"access-control-expose-headers", _EXPOSED),
        _VARY,
    ]


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope["headers"] if key == name), b"")
