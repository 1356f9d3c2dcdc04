"""The ASGI middleware that decodes compressed request bodies."""

import zlib

from servicekit.errors import InvalidRequest, UnsupportedMedia
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_GZIP = (b"gzip", b"x-gzip")  # equivalent by RFC 9110, 8.4.1.3
_GZIP_WINDOW = 31  # zlib's `wbits` for the gzip format
_PIECE_BYTES = 64 * 1024


class ContentDecoding:
    """Decodes bodies with ``Content-Encoding: gzip`` incrementally. Refuses other encodings.

    The layers that limit bodies are inside this layer, so they measure the decoded body.

    Args:
        app: The inner application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            UnsupportedMedia: The body has another encoding.
        """
        if scope["type"] == "http":
            encodings = b",".join(value for name, value in scope["headers"] if name == b"content-encoding")
            encoding = encodings.strip().lower()
            if encoding in _GZIP:
                # Change the scope in place, because outer layers share it. The length was that of the encoded body.
                scope["headers"] = [
                    header
                    for header in scope["headers"]
                    if header[0] not in (b"content-encoding", b"content-length")
                ]
                receive = _Gunzip(receive).receive
            elif encoding not in (b"", b"identity"):
                raise UnsupportedMedia(
                    f"Content-Encoding must be gzip or absent, not {encoding.decode('latin-1')[:100]!r}.",
                    field="content-encoding",
                )
        await self._app(scope, receive, send)


class _Gunzip:
    """Decodes a compressed body."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._stream = zlib.decompressobj(_GZIP_WINDOW)
        self._rest = b""
        self._is_full = False
        """The last piece had the maximum size, so the decoder may have more output."""
        self._begun = False
        self._complete = False
        self._ended = False

    async def receive(self) -> Message:
        """Return the next message of the request, like ASGI's ``receive``.

        Raises:
            InvalidRequest: The body is not gzip, or is incomplete.
        """
        if self._ended:
            return await self._receive()
        if not self._rest and not self._is_full and not self._complete:
            message = await self._receive()
            if message["type"] != "http.request":
                return message
            self._rest = message.get("body", b"")
            self._complete = not message.get("more_body", False)
            self._begun = self._begun or bool(self._rest)
        body = self._decode()
        self._ended = self._complete and not self._rest and not self._is_full
        if self._ended and self._begun and not self._stream.eof:
            raise InvalidRequest("The body is incomplete: its gzip stream does not end.", field="body")
        return {"type": "http.request", "body": body, "more_body": not self._ended}

    def _decode(self) -> bytes:
        if self._stream.eof and self._rest:
            self._stream = zlib.decompressobj(_GZIP_WINDOW)  # RFC 1952, 2.2: a series of members
        try:
            piece = self._stream.decompress(self._rest, _PIECE_BYTES)
        except zlib.error as error:
            raise InvalidRequest(
                "Content-Encoding is gzip, but the body is not valid gzip.", field="body"
            ) from error
        self._rest = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
        self._is_full = len(piece) == _PIECE_BYTES and not self._stream.eof
        return piece
