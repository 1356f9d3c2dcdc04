from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
from causeway_testing.gateway.answering import FakeProbe
from fastapi import FastAPI
from gateway.dialects.registry import registrations
from gateway.main import build_app
from gateway.routes.dispatch import ChatRoutes
from gateway.routes.response_stream import ResponseStream
from gateway.routes.table import route_table
from gateway.routing.route import Role
from gateway.routing.route import Route as Entry
from gateway.routing.table import RouteTable
from gateway.settings import Settings
from servicekit.errors import MethodNotAllowed, NotFound
from servicekit.principal import ROLES
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

TABLE = route_table(registrations())


def inner_app(app: Any, kind: type) -> Any:
    """Return the application of this type that is below the layers."""
    seen = [app]
    while seen:
        each = seen.pop()
        if isinstance(each, kind):
            return each
        seen += [each._app] if hasattr(each, "_app") else []
        seen += [each._others] if hasattr(each, "_others") else []
    raise AssertionError(f"no layer has the type {kind}")


def flattened(routes: Sequence[Any]) -> Iterator[Any]:
    """Yield the routes, including those of included routers, which FastAPI nests."""
    for route in routes:
        included = getattr(route, "original_router", None)
        yield from [route] if included is None else flattened(included.routes)


def routes(app: ASGIApp) -> set[tuple[str, str]]:
    """Return every path and method that the application serves, including undocumented ones."""
    others = list(flattened(inner_app(app, FastAPI).routes))
    found = {
        (route.path, method)
        for route in others
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }
    found |= {(f"{route.path}/{{path:path}}", "GET") for route in others if isinstance(route, Mount)}
    raw = inner_app(app, ChatRoutes)._endpoints
    return found | {(path, "GET" if type(endpoint) is ResponseStream else "POST") for path, endpoint in raw.items()}


def test_every_route_is_in_the_table(app: ASGIApp) -> None:
    """The table has exactly the application's routes. The gateway would refuse a route that the table lacks."""
    assert routes(app) == {(route.path, route.method) for route in TABLE}


def test_roles_have_the_names_of_the_callers_roles() -> None:
    """The roles of routes are the roles of callers, except for the open role."""
    assert set(Role) - {Role.OPEN} == set(ROLES)


@pytest.mark.parametrize(
    ("method", "path", "role"),
    [
        ("POST", "/chat", Role.ASK),
        ("GET", "/indexes", Role.ASK),
        ("GET", "/indexes/a/documents", Role.ASK),
        ("POST", "/indexes/a/documents", Role.INGEST),
        ("DELETE", "/indexes/a", Role.ADMIN),
        ("GET", "/content/a/b c.pdf", Role.ASK),
        ("HEAD", "/content/a/b c.pdf", Role.ASK),
        ("GET", "/chat_history/sessions/a/b", Role.ASK),
        ("GET", "/healthz", Role.OPEN),
        ("GET", "/metrics", Role.ADMIN),
    ],
)
def test_the_role_of_a_request(method: str, path: str, role: Role) -> None:
    """The path and the method determine the role. Paths with parameters are matched."""
    assert TABLE.find(path, method).role is role


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/nowhere",
        "/chat//",
        "//chat",
        "/indexes/",
        "/indexes/a/",
        "/indexes/a/b",
        "/indexes//documents",
        "/health/x",
        "/docs/x",
    ],
)
def test_unknown_paths_are_not_found(path: str) -> None:
    """A path that is only similar to a path of the table is not found."""
    with pytest.raises(NotFound):
        TABLE.find(TABLE.canonical(path), "GET")


def test_chats_accept_a_trailing_slash() -> None:
    """Chats and MCP accept a trailing slash, which some clients send. Other paths do not."""
    chats = {chat.path for dialect in registrations() for chat in dialect.chats}
    assert chats
    chats.add("/mcp")  # servers of this protocol often have a path with a slash
    for route in TABLE:
        accepted = TABLE.canonical(f"{route.path}/") == route.path
        assert accepted == (route.path in chats), route.path


def test_a_wrong_method_lists_the_allowed_ones() -> None:
    """The error lists the allowed methods, as RFC 9110 requires for a 405."""
    with pytest.raises(MethodNotAllowed) as caught:
        TABLE.find("/indexes/a/documents", "DELETE")
    assert caught.value.details["allow"] == "GET, POST"


def test_metrics_can_be_open() -> None:
    """The setting opens the metrics and changes no other route."""
    opened = route_table(registrations(), metrics_open=True)
    changed = {
        (route.path, route.role) for route, before in zip(opened, TABLE, strict=True) if route.role != before.role
    }
    assert changed == {("/metrics", Role.OPEN)}


async def test_the_document_lists_the_role_of_each_route(client: httpx.AsyncClient) -> None:
    """Each operation lists its role and the statuses 401 and 403. An open operation needs no credentials."""
    document = (await client.get("/openapi.json")).json()
    roles = {(route.path.replace(":path}", "}"), route.method): route.role for route in TABLE}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            role = roles[path, method.upper()]
            if role is Role.OPEN:
                assert operation["security"] == []
                continue
            assert operation["description"].endswith(f"Role: `{role}`.")
            assert {"401", "403"} <= set(operation["responses"])
            assert {name for requirement in operation["security"] for name in requirement} == set(
                document["components"]["securitySchemes"]
            )


def test_a_route_that_the_table_lacks_is_found(fakes: Any) -> None:
    """`routes` finds a new route. Otherwise the comparison with the table could not fail."""
    app = build_app(Settings(), fakes.services())
    before = routes(app)
    inner_app(app, FastAPI).add_api_route("/new", FakeProbe("new").check, methods=["PATCH"])
    assert routes(app) - before == {("/new", "PATCH")}


def test_a_route_is_registered_once() -> None:
    """A second registration of a path and a method is refused."""
    with pytest.raises(ValueError, match="POST /chat is registered twice"):
        RouteTable([Entry("/chat", "POST", Role.ASK), Entry("/chat", "POST", Role.ADMIN)])


def test_a_parameter_is_not_matched_by_its_name() -> None:
    """A path that contains braces is matched like any other path."""
    table = RouteTable([Entry("/jobs/{job_id}", "GET", Role.ASK)])
    assert table.find("/jobs/{job_id}", "GET").path == "/jobs/{job_id}"
    with pytest.raises(NotFound):
        table.find("/jobs/{job_id}/x", "GET")
