"""Finds the route of a request by its path and method."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from servicekit.errors import MethodNotAllowed, NotFound
from starlette.routing import compile_path

from gateway.routing.route import Errors, Route


class Match(NamedTuple):
    """What a request's path matches.

    Attributes:
        path: The path as its routes write it.
        parameters: The parameters of the path, by name.
        methods: The routes of the path, by method.
    """

    path: str
    parameters: Mapping[str, str]
    methods: Mapping[str, Route]


class RouteTable:
    """The routes of a gateway. A path that no route has is refused, whoever asks.

    Args:
        routes: One for each path and method.
        errors_below: How errors look at all other paths that begin with a prefix.
    """

    def __init__(self, routes: Iterable[Route], errors_below: Mapping[str, Errors] | None = None) -> None:
        self._methods: dict[str, dict[str, Route]] = {}
        for route in routes:
            methods = self._methods.setdefault(route.path, {})
            if route.method in methods:
                raise ValueError(f"{route.method} {route.path} is registered twice")
            methods[route.method] = route
        # Starlette's own patterns, so that what is found here is what its router finds.
        self._patterns = [
            (compile_path(path)[0], path, methods) for path, methods in self._methods.items() if "{" in path
        ]
        self._plain = {path: Match(path, {}, methods) for path, methods in self._methods.items() if "{" not in path}
        self._errors_below = dict(errors_below or {})

    def __iter__(self) -> Iterator[Route]:
        """Iterate over all routes."""
        for methods in self._methods.values():
            yield from methods.values()

    def canonical(self, path: str) -> str:
        """Return a path as its routes write it: without the slash at its end where they take one."""
        if not path.endswith("/"):
            return path
        routes = self.at(path[:-1]) or {}
        return path[:-1] if any(route.takes_slash for route in routes.values()) else path

    def find(self, path: str, method: str) -> Route:
        """Return the route of a request.

        Raises:
            NotFound: No route has the path.
            MethodNotAllowed: The path has routes, for other methods.
        """
        methods = self.at(path)
        if methods is None:
            raise NotFound(f"There is nothing at {path}.", resource=path)
        # What may be read may be asked for its headers.
        route = methods.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(methods)
            raise MethodNotAllowed(f"{path} does not take {method}.", details={"allow": allowed}, resource=path)
        return route

    def errors(self, path: str) -> Errors | None:
        """Return how errors look at a path, whether there is a route or not; None: as OpenAI's."""
        for route in (self.at(path) or {}).values():
            return route.errors
        return next(
            (errors for prefix, errors in self._errors_below.items() if f"{path}/".startswith(prefix)), None
        )

    def at(self, path: str) -> Mapping[str, Route] | None:
        """Return the routes of a path by their methods; None: there are none."""
        match = self.match(path)
        return None if match is None else match.methods

    def match(self, path: str) -> Match | None:
        """Return what a path matches; None: no route has the path."""
        if (plain := self._plain.get(path)) is not None:
            return plain
        for pattern, template, methods in self._patterns:
            if found := pattern.match(path):
                return Match(template, found.groupdict(), methods)
        return None
