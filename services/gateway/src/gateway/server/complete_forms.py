"""The ASGI middleware that refuses incomplete multipart forms."""

from python_multipart.multipart import parse_options_header
from servicekit.errors import InvalidRequest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_FORM = b"multipart/form-data"


class CompleteForms:
    """Refuses multipart forms without the last boundary.

    The form parsers ignore an incomplete last part without an error. Without this layer, the gateway would accept
    a truncated form and lose its last file.

    Args:
        app: The inner application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. Reading the body raises `InvalidRequest` if the form is incomplete."""
        media = dict(scope.get("headers", ())).get(b"content-type", b"")
        if media[: len(_FORM)].lower() == _FORM:
            boundary = parse_options_header(media)[1].get(b"boundary")
            if boundary:  # the parser refuses a form without a boundary
                receive = _Form(receive, b"--" + boundary + b"--").receive
        await self._app(scope, receive, send)


class _Form:
    """Reads the body of a form and searches it for the last boundary.

    Args:
        receive: ASGI's ``receive``.
        last: The last boundary.
    """

    def __init__(self, receive: Receive, last: bytes) -> None:
        self._receive = receive
        self._last = last
        self._tail = b""  # the end of the previous pieces
        self._complete = False

    async def receive(self) -> Message:
        """Return the next message of the request.

        Raises:
            InvalidRequest: The form ends without its last boundary.
        """
        message = await self._receive()
        if message["type"] == "http.request" and not self._complete:
            piece = message.get("body", b"")
            first = self._tail + piece[: len(self._last)]  # the boundary may be in two pieces
            self._complete = self._last in first or self._last in piece
            self._tail = (self._tail + piece[-len(self._last) :])[-len(self._last) :]
            if not self._complete and not message.get("more_body", False):
                raise InvalidRequest("The form is incomplete: its last boundary is missing.", field="body")
        return message
