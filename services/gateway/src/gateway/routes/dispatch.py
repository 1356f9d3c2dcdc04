"""Takes a request for a chat to its endpoint."""

from collections.abc import Mapping

from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send


class ChatRoutes:
    """Answers the chat paths; what is asked of others goes to another application.

    A look-up, because the matching of a router and the layers that a framework puts around each of its routes would
    cost a sixth of what a short answer does.

    Args:
        endpoints: By path.
        others: All other paths.
    """

    def __init__(self, endpoints: Mapping[str, ASGIApp], others: ASGIApp) -> None:
        self._endpoints = endpoints
        self._patterns = [(compile_path(path)[0], path) for path in endpoints if "{" in path]
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        route = self._route(scope) if scope["type"] == "http" else ""
        endpoint = self._endpoints.get(route)
        if endpoint is None:
            await self._others(scope, receive, send)
        else:
            scope["http.route"] = route
            await endpoint(scope, receive, send)

    def _route(self, scope: Scope) -> str:
        path: str = scope["path"]
        if path not in self._endpoints:
            for pattern, route in self._patterns:
                if found := pattern.match(path):
                    scope["path_params"] = found.groupdict()
                    return route
        return path
