"""Dispatches a chat request to its endpoint."""

from collections.abc import Mapping

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.routing.table import RouteTable


class ChatRoutes:
    """Answers the chat paths; passes other requests to another application.

    It uses a look-up: a router's matching and a framework's layers around each route would cost a sixth of a short
    answer's time.

    Args:
        table: Finds the path of a route.
        endpoints: By path of the route.
        others: Answers all other paths.
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
