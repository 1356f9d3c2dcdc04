"""Random requests to every route of the OpenAPI document except the chats.

Most requests follow the document. CAUSEWAY_FUZZ_EXAMPLES is the number of requests for each route; `make fuzz`
sends many.
"""

import asyncio
import json
import os
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from gateway.main import build_app
from gateway.routes.table import ROUTES as TABLE
from gateway.settings import Settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("CAUSEWAY_FUZZ_EXAMPLES", "100"))
CONSOLE = {"/", "/console/{path:path}"}
PAGES = {"/docs", "/docs/oauth2-redirect", "/static-offline-docs/{path:path}", "/openapi.json", *CONSOLE}
ROUTES = [f"{route.method} {route.path.replace(':path}', '}')}" for route in TABLE if route.path not in PAGES]
# Statuses that are not documented for each route: some parameter values lead to another route, or to no route.
EVERYWHERE = {"404", "405", "307"}
BOUNDARY = "edge"

words = st.sampled_from(["docs", "empty", "d1", "guide.pdf", "../x", "a/b", "0", "-1", "1e9", "true", "%00", ""])
odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**62, 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def mostly(usual: st.SearchStrategy[Any], other: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return a strategy of the usual values, with another value one time in ten."""
    return st.integers(0, 9).flatmap(lambda number: other if number == 7 else usual)


class Shapes:
    """Strategies of values that mostly follow the schemas of a document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._named = document["components"]["schemas"]

    def of(self, schema: dict[str, Any], depth: int = 0) -> st.SearchStrategy[Any]:
        """Return a strategy of the values of a schema, and of any values below a depth of 6."""
        if depth > 6:
            return odd
        if "$ref" in schema:
            return self.of(self._named[schema["$ref"].rsplit("/", 1)[1]], depth)
        if choices := schema.get("anyOf") or schema.get("oneOf"):
            return st.one_of([self.of(choice, depth + 1) for choice in choices])
        if "enum" in schema:
            return mostly(st.sampled_from(schema["enum"]), odd)
        return mostly(self._of_type(schema, depth), odd)

    def _of_type(self, schema: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
        match schema.get("type"):
            case "object":
                return self._object(schema, depth)
            case "array":
                return st.lists(self.of(schema.get("items", {}), depth + 1), max_size=3)
            case "string":
                return words | st.text(max_size=12)
            case "integer":
                return st.integers(schema.get("minimum", -2), schema.get("maximum", 50))
            case "number":
                return st.floats(schema.get("minimum", -2), schema.get("maximum", 50))
            case "boolean":
                return st.booleans()
            case _:
                return odd

    def _object(self, schema: dict[str, Any], depth: int) -> st.SearchStrategy[Any]:
        fields = {name: self.of(inner, depth + 1) for name, inner in schema.get("properties", {}).items()}
        required = {name: fields.pop(name) for name in schema.get("required", []) if name in fields}
        known = mostly(st.fixed_dictionaries(required, optional=fields), st.fixed_dictionaries({}, optional=fields))
        more = st.dictionaries(words, odd, max_size=2)
        return st.tuples(
            known, more if schema.get("additionalProperties", True) else mostly(st.just({}), more)
        ).map(lambda both: both[0] | both[1] if isinstance(both[1], dict) else both[0])


def form(fields: Any) -> bytes:
    """Return the fields as a form.

    A list repeats its field, and a field whose name starts with `file` is a file.
    """
    parts = []
    for name, value in fields.items() if isinstance(fields, dict) else ():
        for item in value if isinstance(value, list) else [value]:
            file = '; filename="x.txt"' if name.startswith("file") else ""
            named = quote(name, safe=" /")
            parts.append(f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{named}"{file}\r\n\r\n{item}\r\n')
    return "".join([*parts, f"--{BOUNDARY}--\r\n"]).encode()


def damaged(body: bytes, at: int, replacement: bytes) -> bytes:
    """Return the body with other bytes at a position."""
    at %= len(body) + 1
    return body[:at] + replacement + body[at + len(replacement) :]


def contents(operation: dict[str, Any], shapes: Shapes) -> st.SearchStrategy[tuple[str, bytes]]:
    """Return a strategy of media types and bodies, mostly valid for the route."""
    strategies: list[st.SearchStrategy[tuple[str, bytes]]] = []
    for kind, content in operation.get("requestBody", {"content": {}})["content"].items():
        values = shapes.of(content["schema"])
        if kind == "multipart/form-data":
            strategies.append(st.tuples(st.just(f"{kind}; boundary={BOUNDARY}"), values.map(form)))
        else:
            strategies.append(st.tuples(st.just(kind), values.map(lambda value: json.dumps(value).encode())))
    usual = st.one_of(strategies) if strategies else st.just(("", b""))
    broken = st.builds(
        lambda pair, at, replacement: (pair[0], damaged(pair[1], at, replacement)),
        usual,
        st.integers(0, 500),
        st.binary(max_size=6),
    )
    kinds = st.sampled_from(
        ["application/json", "multipart/form-data", "text/plain", "\x00", "application/x+json", ""]
    )
    return mostly(
        usual, broken | st.tuples(kinds, st.binary(max_size=40) | odd.map(lambda v: json.dumps(v).encode()))
    )


def parameters(operation: dict[str, Any], place: str, shapes: Shapes) -> st.SearchStrategy[dict[str, str]]:
    """Return a strategy of the parameters of the path or the query, as texts."""
    declared = {item["name"]: item for item in operation.get("parameters", []) if item["in"] == place}
    texts = {name: mostly(shapes.of(item["schema"]) | words, odd).map(str) for name, item in declared.items()}
    return st.fixed_dictionaries(texts) if place == "path" else st.fixed_dictionaries({}, optional=texts)


visible = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_categories=["Cc"]), max_size=20)
headers = st.dictionaries(
    st.sampled_from(
        ["accept", "range", "if-none-match", "if-modified-since", "last-event-id", "traceparent", "origin"]
    ),
    mostly(visible, st.sampled_from(["bytes=0-", "bytes=5-2", "bytes=-9", "*", "0", "a,b"])),
    max_size=2,
)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """Return the OpenAPI document. It is empty until the first test loads it, because its creation is slow."""
    return {}


@pytest.mark.timeout(0)  # the number of examples determines the time
@pytest.mark.parametrize("route", ROUTES)
def test_any_request_is_answered_or_refused(route: str, document: dict[str, Any], fakes: Any) -> None:
    """Each request gets a status that the document names, and each error has a JSON body that is not empty."""
    method, path = route.split(" ")
    app = build_app(Settings(default_index="docs", max_body_bytes=20_000, upload_timeout=0.01), fakes.services())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    with asyncio.Runner() as runner:
        client = httpx.AsyncClient(transport=transport, base_url="http://gateway")
        if not document:
            document.update(runner.run(client.get("/openapi.json")).json())
        operation = document["paths"][path][method.lower()]
        documented = set(operation["responses"]) | EVERYWHERE
        shapes = Shapes(document)

        @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
        @given(
            parameters(operation, "path", shapes),
            parameters(operation, "query", shapes),
            headers,
            contents(operation, shapes),
        )
        def ask(
            named: dict[str, str], query: dict[str, str], more: dict[str, str], body: tuple[str, bytes]
        ) -> None:
            url = path
            for name, value in named.items():
                url = url.replace(f"{{{name}}}", quote(value, safe="/", errors="replace"))
            sent = [(name.encode(), value.encode("latin-1")) for name, value in more.items()]
            sent += [(b"content-type", body[0].encode())] if body[0] else []
            request = client.build_request(method, url, params=query, headers=sent, content=body[1])
            response = runner.run(client.send(request))
            fakes.generator.prompts.clear()
            assert str(response.status_code) in documented, response.text
            if response.status_code >= 400:
                assert response.json(), response.text

        ask()
        runner.run(client.aclose())
