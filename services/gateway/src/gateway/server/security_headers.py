"""Headers that limit what browsers do with an answer, as pure ASGI around the routes other than chats.

Sources: the Fetch standard (``X-Content-Type-Options``), Content Security Policy 3. The originals of documents set
their own headers (`routes.content`).
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.server.responses import NOSNIFF

_ALWAYS = (NOSNIFF, (b"referrer-policy", b"no-referrer"))
_POLICY = b"content-security-policy"
# The policy of data: a page with it may load nothing, and no other page may show it in a frame.
_DATA = b"default-src 'none'; frame-ancestors 'none'"
# The policy of the API's description: scripts, styles and data come from this host or from the page itself.
_PAGE = (
    b"default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    b"img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_PAGES = "/docs"
_ORIGINALS = "/content/"


class PageHeaders:
    """Adds the headers that an answer does not set itself.

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
                there = {name for name, _ in headers}
                added = [*_ALWAYS, (_POLICY, policy)] if policy else _ALWAYS
                message["headers"] = [*headers, *(each for each in added if each[0] not in there)]
            await send(message)

        await self._app(scope, receive, send_with_headers)
