"""The ASGI middleware for a gateway that a proxy serves under a path prefix."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_DESCRIPTION = frozenset(("/docs", "/openapi.json"))


class PublicPath:
    """Adds the public path to the addresses in the gateway's responses.

    The proxy removes the path from requests. This layer adds the path to the page `/docs` and the OpenAPI document
    (by ASGI's ``root_path``), and to the header ``Location``. The path is a setting, because every client can send
    the header ``X-Forwarded-Prefix``.

    Args:
        app: The inner application.
        path: The public path, such as ``/causeway``.
    """

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app = app
        self._path = path
        self._prefix = path.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] in _DESCRIPTION:
            scope = {**scope, "root_path": self._path, "path": self._path + scope["path"]}

        async def send_with_path(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    (name, self._prefix + value if name == b"location" and value.startswith(b"/") else value)
                    for name, value in message.get("headers", ())
                ]
            await send(message)

        await self._app(scope, receive, send_with_path)
