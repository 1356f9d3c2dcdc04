"""Which front end profile a request belongs to, as pure ASGI: everything inside finds it in the request's state."""

from collections.abc import Iterable

from servicekit.errors import NotFound
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.frontends import Frontend, FrontendsNow


def frontend_of(scope: Scope) -> Frontend:
    """The profile that a request belongs to."""
    found: Frontend = scope["state"]["frontend"]
    return found


def first_segments(paths: Iterable[str]) -> frozenset[str]:
    """What the paths begin with, up to the second slash."""
    return frozenset(path[1:].partition("/")[0] for path in paths)


class ProfileLayer:
    """Finds the profile, once for all: ``scope["state"]["frontend"]``.

    Below a mount it takes the mount off ``scope["path"]``, so that every route serves below every mount. It stands
    around all other layers, for even what refuses a request speaks the profile's dialect.

    Args:
        app: What is below.
        frontends: Gives the profiles.
    """

    def __init__(self, app: ASGIApp, frontends: FrontendsNow) -> None:
        self._app = app
        self._frontends = frontends

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] == "http":
            host = origin = b""
            for name, value in scope["headers"]:
                if name == b"host":
                    host = value
                elif name == b"origin":
                    origin = value
            frontend, scope["path"] = self._frontends().resolve(
                scope["path"], host.decode("latin-1").lower(), origin.decode("latin-1")
            )
            state = scope.setdefault("state", {})
            state["frontend"] = frontend
            state["log"] = {"frontend": frontend.name}
        await self._app(scope, receive, send)


class Reach:
    """Keeps front ends that limit their indexes to the routes that know of the limit.

    The routes that manage indexes would lead around it, and list what it hides.

    Args:
        app: What is below.
        segments: First segments of the paths that every front end has.
    """

    def __init__(self, app: ASGIApp, segments: frozenset[str]) -> None:
        self._app = app
        self._segments = segments

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] == "http":
            frontend, path = frontend_of(scope), scope["path"]
            if frontend.indexes is not None and first_segments([path]).isdisjoint(self._segments):
                raise NotFound(
                    f"The front end '{frontend.name}' limits its indexes, and so has nothing at {path}.",
                    resource=path,
                )
        await self._app(scope, receive, send)
