"""The disk space of uploads while they are received and passed on."""

from servicekit.errors import RateLimited
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.server.request_state import state_of

_FILES = 2  # the upload itself, and a file made from it: a batch of texts, an answer that names them
_RETRY_SECONDS = 5.0


class SpoolLimit:
    """Refuses uploads for which the spool has no room.

    Forms and batches are spooled to temporary files without a name, which the limit of a Kubernetes `emptyDir` does
    not count. So room is reserved for each upload before it is read: twice its length, or twice the limit if the
    length is unknown.

    Args:
        app: The inner application.
        room: The maximum number of bytes of all uploads together.
        largest: The maximum number of bytes of one upload.
    """

    def __init__(self, app: ASGIApp, room: int, largest: int) -> None:
        self._app = app
        self._left = room
        self._largest = largest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            RateLimited: There is no room.
        """
        route = state_of(scope).route
        if scope["type"] != "http" or route is None or not route.upload:
            await self._app(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length", b"")
        # `BodyLimit` refuses an invalid length, or one that is too large.
        taken = _FILES * min(int(length) if length.isdigit() else self._largest, self._largest)
        if taken > self._left:
            raise RateLimited("Too many uploads are in progress.", retry_after=_RETRY_SECONDS)
        self._left -= taken
        try:
            await self._app(scope, receive, send)
        finally:
            self._left += taken
