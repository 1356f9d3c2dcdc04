"""The ASGI middleware that limits the disk space of concurrent uploads."""

from servicekit.errors import RateLimited
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.server.request_state import state_of

_FILES_PER_UPLOAD = 2  # the upload itself, and one file made from it (a batch of texts, or the response)
_RETRY_SECONDS = 5.0


class SpoolLimit:
    """Refuses an upload if concurrent uploads have already reserved too much disk space.

    The gateway keeps forms and batches in unnamed temporary files. These files do not count towards the size limit
    of a Kubernetes `emptyDir`. Therefore this middleware reserves space for each upload before the gateway reads
    it: twice its length, or twice the maximum length if the length is unknown.

    Args:
        app: The inner application.
        capacity: The maximum number of bytes that all uploads reserve together.
        max_upload: The maximum number of bytes of one upload.
    """

    def __init__(self, app: ASGIApp, capacity: int, max_upload: int) -> None:
        self._app = app
        self._free_bytes = capacity
        self._max_upload = max_upload

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
        reserved = _FILES_PER_UPLOAD * min(int(length) if length.isdigit() else self._max_upload, self._max_upload)
        if reserved > self._free_bytes:
            raise RateLimited("Too many uploads are in progress. Try again later.", retry_after=_RETRY_SECONDS)
        self._free_bytes -= reserved
        try:
            await self._app(scope, receive, send)
        finally:
            self._free_bytes += reserved
