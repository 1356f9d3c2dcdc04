"""What keeps browsers from making more of an answer than it is, as pure ASGI around the routes that are no chats.

Sources: the Fetch standard (``X-Content-Type-Options``), Content Security Policy 3. The originals of documents say
themselves what they may do (`routes.content`).
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.server.responses import NOSNIFF

_ALWAYS = (NOSNIFF, (b"referrer-policy", b"no-referrer"))
_POLICY = b"content-security-policy"
# Data: nothing is loaded for it, and no page shows it in a frame.
_DATA = b"default-src 'none'; frame-ancestors 'none'"
# The description of the interface: its script, style and data are this host's, but for what stands in the page.
_PAGE = (
    b"default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    b"img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_PAGES = "/docs"
_ORIGINALS = "/content/"


class PageHeaders:
    """Adds the headers that an answer does not have by itself.

    Args:
        app: What is below.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
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
