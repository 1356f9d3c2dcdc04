"""The ASGI middleware that selects the profile and the route of a request, and enforces limits of indexes."""

from servicekit.errors import CausewayError, NotFound
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.frontends.snapshot import CurrentFrontends
from gateway.routing.route import IndexReach
from gateway.routing.table import RouteTable
from gateway.server.request_state import state_of


class ProfileLayer:
    """Finds the profile and the route of a request, and stores both in its `RequestState`.

    The layer removes a mount from ``scope["path"]``, so that every route works below every mount. It also removes a
    trailing slash from the path of a chat or of MCP, because some clients add one. It is outside all other layers,
    because errors also depend on the profile.

    Args:
        app: The inner application.
        frontends: Returns the profiles.
        routes: The routes below every mount.
    """

    def __init__(self, app: ASGIApp, frontends: CurrentFrontends, routes: RouteTable) -> None:
        self._app = app
        self._frontends = frontends
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
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
            # Look-ups by path follow, and need the canonical path.
            scope["path"] = self._routes.canonical(path)
            state = state_of(scope)
            state.frontend = frontend
            state.log["frontend"] = frontend.name
            try:
                state.route = self._routes.find(scope["path"], scope["method"])
            except CausewayError as error:
                state.no_route = error
        await self._app(scope, receive, send)


class ReachLimit:
    """Refuses routes with access to all indexes of the tenant, if the front end limits its indexes.

    Args:
        app: The inner application.
        routes: The routes. The attribute ``reach`` of a route names the indexes that it can access.
    """

    def __init__(self, app: ASGIApp, routes: RouteTable) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request.

        Raises:
            NotFound: The front end does not serve the route.
        """
        if scope["type"] == "http":
            state, path = state_of(scope), scope["path"]
            if state.frontend.indexes is not None and self._reaches_all(path):
                name = state.frontend.name
                raise NotFound(
                    f"The front end '{name}' limits its indexes, so it does not serve {path}.", resource=path
                )
        await self._app(scope, receive, send)

    def _reaches_all(self, path: str) -> bool:
        # Check all methods of the path, because the error for a wrong method would reveal that the path exists.
        return any(route.reach is IndexReach.TENANT for route in (self._routes.at(path) or {}).values())
