"""The room that uploads take on the disk while they come and are handed over."""

from servicekit.errors import RateLimited
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.server.request_state import state_of

_FILES = 2  # what comes, and what is made of it: a batch of texts, an answer that names them
_RETRY_SECONDS = 5.0


class SpoolLimit:
    """Refuses uploads for which the spool has no room.

    Forms and batches are spooled to temporary files without a name, which the limit of a Kubernetes `emptyDir` does
    not see. So each upload has its room set aside before it is read: twice its length, or twice the most that is
    let in where it does not say its length.

    Args:
        app: What is below.
        room: Bytes of all uploads together.
        largest: Bytes of the largest one that is let in.
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
        # `BodyLimit` says what is wrong with one that is none, or too large.
        taken = _FILES * min(int(length) if length.isdigit() else self._largest, self._largest)
        if taken > self._left:
            raise RateLimited("Too many uploads are under way.", retry_after=_RETRY_SECONDS)
        self._left -= taken
        try:
            await self._app(scope, receive, send)
        finally:
            self._left += taken
