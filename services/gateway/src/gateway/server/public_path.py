"""The path below which a proxy offers the gateway, as pure ASGI around the routes other than chats."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

_DESCRIPTION = frozenset(("/docs", "/openapi.json"))


class PublicPath:
    """Adds the public path to the addresses in the gateway's answers.

    The proxy removes the path from a request, so the routes do not see it. The page of the interface, the OpenAPI
    document (ASGI's ``root_path``) and the header ``Location`` contain it. The path is a setting. The header
    ``X-Forwarded-Prefix``, which any client can send, has no effect.

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
