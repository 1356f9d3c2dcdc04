"""The route table, which finds the route of a request by path and method."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from servicekit.errors import MethodNotAllowed, NotFound
from starlette.routing import compile_path

from gateway.routing.route import Errors, Route


class Match(NamedTuple):
    """The result of matching a request's path.

    Attributes:
        path: The path pattern of the routes.
        parameters: The parameters of the path, by name.
        methods: The routes of the path, by method.
    """

    path: str
    parameters: Mapping[str, str]
    methods: Mapping[str, Route]


class RouteTable:
    """The routes of a gateway. The gateway refuses every request to another path.

    Args:
        routes: The routes, one for each path and method.
        errors_below: Renders errors at paths without a route, by the prefix of the path.
    """

    def __init__(self, routes: Iterable[Route], errors_below: Mapping[str, Errors] | None = None) -> None:
        self._methods: dict[str, dict[str, Route]] = {}
        for route in routes:
            methods = self._methods.setdefault(route.path, {})
            if route.method in methods:
                raise ValueError(f"{route.method} {route.path} is registered twice")
            methods[route.method] = route
        # Starlette compiles the patterns, so that the table and Starlette's router agree.
        self._patterns = [
            (compile_path(path)[0], path, methods) for path, methods in self._methods.items() if "{" in path
        ]
        self._exact = {path: Match(path, {}, methods) for path, methods in self._methods.items() if "{" not in path}
        self._errors_below = dict(errors_below or {})

    def __iter__(self) -> Iterator[Route]:
        """Iterate over all routes."""
        for methods in self._methods.values():
            yield from methods.values()

    def canonical(self, path: str) -> str:
        """Return the path, without a trailing slash that the path's routes ignore."""
        if not path.endswith("/"):
            return path
        routes = self.at(path[:-1]) or {}
        return path[:-1] if any(route.accepts_trailing_slash for route in routes.values()) else path

    def find(self, path: str, method: str) -> Route:
        """Return the route of a request.

        Raises:
            NotFound: No route has the path.
            MethodNotAllowed: The path has only routes for other methods.
        """
        methods = self.at(path)
        if methods is None:
            raise NotFound(f"The path {path} does not exist.", resource=path)
        # HEAD is allowed on every route that allows GET.
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(methods)
            raise MethodNotAllowed(
                f"{path} does not accept {method}. Allowed: {allowed}.", details={"allow": allowed}, resource=path
            )
        return route

    def errors(self, path: str) -> Errors | None:
        """Return the function that renders the errors of a path, which may have no route; None: OpenAI's format."""
        for route in (self.at(path) or {}).values():
            return route.errors
        return next(
            (errors for prefix, errors in self._errors_below.items() if f"{path}/".startswith(prefix)), None
        )

    def at(self, path: str) -> Mapping[str, Route] | None:
        """Return the routes of a path by method; None if the path has no route."""
        match = self.match(path)
        return None if match is None else match.methods

    def match(self, path: str) -> Match | None:
        """Match a path; return None if no route matches."""
        if (exact := self._exact.get(path)) is not None:
            return exact
        for pattern, template, methods in self._patterns:
            if found := pattern.match(path):
                return Match(template, found.groupdict(), methods)
        return None
