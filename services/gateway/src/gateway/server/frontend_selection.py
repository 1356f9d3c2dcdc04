"""Which profile and which route a request belongs to, as pure ASGI: everything inside finds them in its state."""

from servicekit.errors import CausewayError, NotFound
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.frontends.profiles import FrontendsNow
from gateway.routing.route import IndexReach
from gateway.routing.table import RouteTable
from gateway.server.request_state import state_of


class ProfileLayer:
    """Finds the profile and the route, once for all (`RequestState.frontend`, `RequestState.route`).

    Below a mount it takes the mount off ``scope["path"]``, so that every route serves below every mount. It also
    takes off the slash at the end of a chat's path, which some clients write. It is around all other layers,
    because an error is written in the profile's dialect, too.

    Args:
        app: What is below.
        frontends: Gives the profiles.
        routes: The routes below every mount.
    """

    def __init__(self, app: ASGIApp, frontends: FrontendsNow, routes: RouteTable) -> None:
        self._app = app
        self._frontends = frontends
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] == "http":
            host = origin = b""
            for name, value in scope["headers"]:
                if name == b"host":
                    host = value
                elif name == b"origin":
                    origin = value
            frontend, path = self._frontends().resolve(
                scope["path"], host.decode("latin-1").lower(), origin.decode("latin-1")
            )
            # Before anything is looked up by the path.
            scope["path"] = self._routes.canonical(path)
            state = state_of(scope)
            state.frontend = frontend
            state.log["frontend"] = frontend.name
            try:
                state.route = self._routes.find(scope["path"], scope["method"])
            except CausewayError as error:
                state.no_route = error
        await self._app(scope, receive, send)


class Reach:
    """Keeps front ends that limit their indexes away from routes that reach all indexes of the tenant.

    Args:
        app: What is below.
        routes: The routes, each with its reach.
    """

    def __init__(self, app: ASGIApp, routes: RouteTable) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] == "http":
            state, path = state_of(scope), scope["path"]
            if state.frontend.indexes is not None and self._reaches_all(path):
                name = state.frontend.name
                raise NotFound(
                    f"The front end '{name}' limits its indexes, and so has nothing at {path}.", resource=path
                )
        await self._app(scope, receive, send)

    def _reaches_all(self, path: str) -> bool:
        # Whatever the method: a wrong one would tell that the path exists.
        return any(route.reach is IndexReach.TENANT for route in (self._routes.at(path) or {}).values())
