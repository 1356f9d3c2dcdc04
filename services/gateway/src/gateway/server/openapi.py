"""The OpenAPI description of the chat routes, which FastAPI does not see."""

from collections.abc import Iterator, Sequence
from typing import Any

from fastapi import FastAPI

from gateway.dialects.openapi import PROBLEM
from gateway.dialects.orchestrator import openapi as openapi_orchestrator
from gateway.dialects.rag_chat import openapi as openapi_stages
from gateway.dialects.registration import Registration
from gateway.routing.route import Role
from gateway.routing.table import RouteTable

_TAGS = {
    "retrieval": "Passages without an answer.",
    "users": "What users have stored, looked after by an administrator.",
    "documents": "Files and texts in, and the jobs that make them findable.",
    "indexes": "What there is, its settings, snapshots, rebuilds.",
    "front ends": "What chat pages ask for besides answers.",
    "health": "For probes and scrapers.",
}
"""The groups of the routes that belong to no dialect, in the order in which they are shown."""
FRONT_ENDS = "front ends"
"""Tag of the routes whose errors are a text."""

_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key or an OpenID Connect token, where the deployment asks for one",
    },
    "api-key": {"type": "apiKey", "in": "header", "name": "api-key", "description": "An API key"},
}


def describe(app: FastAPI, dialects: Sequence[Registration], routes: RouteTable) -> None:
    """Add the dialects' routes to the application's OpenAPI document, and to all others the shape of their errors.

    Args:
        app: The application, whose own routes are in the document.
        dialects: Describe their routes that the application does not have.
        routes: Says which role each route needs.
    """
    # As the document writes the paths.
    roles = {(route.path.replace(":path}", "}"), route.method.lower()): route.role for route in routes}
    tags = {tag: text for dialect in dialects for tag, text in dialect.tags.items()} | _TAGS
    generate = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema  # as it was described before: FastAPI keeps the one that it made
        document = generate()
        document["paths"] = _paths(dialects) | document["paths"]
        document["tags"] = [{"name": name, "description": text} for name, text in tags.items()]
        document.setdefault("components", {})["securitySchemes"] = _SCHEMES
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                _describe_access(operation, roles[path, method])
                _describe_errors(operation)
        for schema in ("HTTPValidationError", "ValidationError"):
            document.get("components", {}).get("schemas", {}).pop(schema, None)
        return document

    app.openapi = described  # type: ignore[method-assign]  # FastAPI's documented way to extend the document


def _describe_access(operation: dict[str, Any], role: Role) -> None:
    """Which role it takes, where the deployment asks who asks."""
    if role is Role.OPEN:
        operation["security"] = []
        operation["responses"].setdefault("403", {"description": "Pages of that origin may not call it"})
        return
    operation["security"] = [{scheme: []} for scheme in _SCHEMES]
    operation["description"] = f"{operation.get('description', '')}\n\nRole: `{role}`.".strip()
    operation["responses"].setdefault("401", {"description": "No credentials, or no good ones"})
    operation["responses"].setdefault("403", {"description": "The caller may not do this"})


def _describe_errors(operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    if "HTTPValidationError" in str(responses.get("422")):
        # FastAPI's own status for what is wrong with a request; ours is 400.
        del responses["422"]
    for status, text in _refusals(operation):
        responses.setdefault(status, {"description": text})
    schema = PROBLEM
    if FRONT_ENDS in operation.get("tags", ()):
        schema = openapi_stages.TEXT_ERROR
    elif openapi_orchestrator.TAG in operation.get("tags", ()) and "requestBody" in operation:
        schema = openapi_orchestrator.ERROR
    # A route that shows what is a wrong request shows with it what its errors are like.
    content = responses.get("400", {}).get("content", {"application/json": {"schema": schema}})
    for status, response in responses.items():
        if status >= "400":
            response.setdefault("content", content)


def _refusals(operation: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What any route may answer that takes something: the layers around it, and the reading of its parameters."""
    if "parameters" in operation or "requestBody" in operation:
        yield "400", "The request is wrong; the message names the field"
    if "requestBody" in operation:
        yield "413", "The body is too large"
        yield "415", "The body is of a media type that is not read here"


def _paths(dialects: Sequence[Registration]) -> dict[str, Any]:
    chats = {chat.path.replace(":path}", "}"): chat.operation for dialect in dialects for chat in dialect.chats}
    others = {path: operation for dialect in dialects for path, operation in dialect.operations.items()}
    return {path: {"post": operation} for path, operation in (chats | others).items()}
