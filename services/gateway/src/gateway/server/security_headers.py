"""The ASGI middleware that adds the security headers for browsers to responses.

Sources: the Fetch standard (``X-Content-Type-Options``) and Content Security Policy 3. `routes.originals` sets the
policy of original documents.
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.server.responses import NOSNIFF

_ALWAYS = (NOSNIFF, (b"referrer-policy", b"no-referrer"))
_POLICY = b"content-security-policy"
# The policy of data: a browser that shows it as a page loads nothing else, and no page may frame it.
_DATA = b"default-src 'none'; frame-ancestors 'none'"
# The policy of the page `/docs`: scripts, styles and data come from this host or from the page itself.
_PAGE = (
    b"default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    b"img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_PAGES = "/docs"
_ORIGINALS = "/content/"


class PageHeaders:
    """Adds the headers that a response does not set itself.

    Args:
        app: The inner application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        policy = _PAGE if path.startswith(_PAGES) else b"" if path.startswith(_ORIGINALS) else _DATA

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.get("headers", ())
                present = {name for name, _ in headers}
                added = [*_ALWAYS, (_POLICY, policy)] if policy else _ALWAYS
                message["headers"] = [*headers, *(header for header in added if header[0] not in present)]
            await send(message)

        await self._app(scope, receive, send_with_headers)
