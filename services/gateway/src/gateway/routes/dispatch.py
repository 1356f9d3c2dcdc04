"""Takes a request for a chat to its endpoint."""

from collections.abc import Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.routing.table import RouteTable


class ChatRoutes:
    """Answers the chat paths; what is asked of others goes to another application.

    A look-up, because the matching of a router and the layers that a framework puts around each of its routes would
    cost a sixth of what a short answer does.

    Args:
        table: Finds the path of a route.
        endpoints: By path of the route.
        others: All other paths.
    """

    def __init__(self, table: RouteTable, endpoints: Mapping[str, ASGIApp], others: ASGIApp) -> None:
        self._table = table
        self._endpoints = endpoints
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and (match := self._table.match(scope["path"])) is not None:
            endpoint = self._endpoints.get(match.path)
            if endpoint is not None:
                scope["http.route"], scope["path_params"] = match.path, match.parameters
                await endpoint(scope, receive, send)
                return
        await self._others(scope, receive, send)
