"""The ASGI middleware that limits the disk space of concurrent uploads."""

from servicekit.errors import RateLimited
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.server.request_state import state_of

_FILES = 2  # the upload itself, and one file made from it (a batch of texts, or the response)
_RETRY_SECONDS = 5.0


class SpoolLimit:
    """Refuses uploads for which the gateway has not enough disk space.

    Forms and batches are in temporary files without a name, which the limit of a Kubernetes `emptyDir` does not
    count. Therefore this layer reserves space for each upload before reading it: twice its length, or twice the
    maximum length if the length is unknown.

    Args:
        app: The inner application.
        room: The maximum number of bytes of all uploads together.
        largest: The maximum number of bytes of one upload.
    """

    def __init__(self, app: ASGIApp, room: int, largest: int) -> None:
        self._app = app
        self._free_bytes = room
        self._largest = largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            RateLimited: The upload needs more than the remaining space.
        """
        route = state_of(scope).route
        if scope["type"] != "http" or route is None or not route.upload:
            await self._app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"")
        # `BodyLimit` refuses an invalid length, or one that is too large.
        reserved = _FILES * min(int(length) if length.isdigit() else self._largest, self._largest)
        if reserved > self._free_bytes:
            raise RateLimited("Too many uploads are in progress. Try again later.", retry_after=_RETRY_SECONDS)
        self._free_bytes -= reserved
        try:
            await self._app(scope, receive, send)
        finally:
            self._free_bytes += reserved
