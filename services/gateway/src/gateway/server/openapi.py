"""Adds the chat routes, which FastAPI does not serve, and all routes' roles and errors to the OpenAPI document."""

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
    "users": "Stored data of users, for administrators.",
    "documents": "Files and texts to index, and their jobs.",
    "indexes": "Indexes, their settings, snapshots and rebuilds.",
    "front ends": "Routes that chat pages call in addition to the chat routes.",
    "health": "For probes and scrapers.",
}
"""The tags of the routes that belong to no dialect, in the order of the document."""
FRONT_ENDS = "front ends"
"""The tag of the routes whose errors are plain text."""

_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key or an OpenID Connect token, if the deployment requires one",
    },
    "api-key": {"type": "apiKey", "in": "header", "name": "api-key", "description": "An API key"},
}


def describe(app: FastAPI, dialects: Sequence[Registration], routes: RouteTable) -> None:
    """Add the dialects' routes, and the roles and errors of all routes, to the application's OpenAPI document.

    Args:
        app: The application, whose own routes are already in the document.
        dialects: The dialects, with the OpenAPI operations of their routes.
        routes: The routes with their roles.
    """
    # The document writes paths without converters.
    roles = {(route.path.replace(":path}", "}"), route.method.lower()): route.role for route in routes}
    tags = {tag: text for dialect in dialects for tag, text in dialect.tags.items()} | _TAGS
    generate = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema  # FastAPI's cache of the document
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
    """Describe the role that an operation needs, and the errors of authentication."""
    if role is Role.OPEN:
        operation["security"] = []
        operation["responses"].setdefault("403", {"description": "Pages of this origin may not call the route"})
        return
    operation["security"] = [{scheme: []} for scheme in _SCHEMES]
    operation["description"] = f"{operation.get('description', '')}\n\nRole: `{role}`.".strip()
    operation["responses"].setdefault("401", {"description": "The credential is missing or invalid"})
    operation["responses"].setdefault("403", {"description": "The caller lacks the permission"})


def _describe_errors(operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    if "HTTPValidationError" in str(responses.get("422")):
        # FastAPI describes invalid requests with 422, but the gateway responds with 400.
        del responses["422"]
    for status, text in _refusals(operation):
        responses.setdefault(status, {"description": text})
    schema = PROBLEM
    if FRONT_ENDS in operation.get("tags", ()):
        schema = openapi_stages.TEXT_ERROR
    elif openapi_orchestrator.TAG in operation.get("tags", ()) and "requestBody" in operation:
        schema = openapi_orchestrator.ERROR
    # A route that describes its 400 also describes the format of its errors.
    content = responses.get("400", {}).get("content", {"application/json": {"schema": schema}})
    for status, response in responses.items():
        if status >= "400":
            response.setdefault("content", content)


def _refusals(operation: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the status and the description of each error that an operation's parameters or body can cause."""
    if "parameters" in operation or "requestBody" in operation:
        yield "400", "The request is invalid; the message names the field"
    if "requestBody" in operation:
        yield "413", "The body is too large"
        yield "415", "The media type of the body is not supported"


def _paths(dialects: Sequence[Registration]) -> dict[str, Any]:
    chats = {chat.path.replace(":path}", "}"): chat.operation for dialect in dialects for chat in dialect.chats}
    others = {path: operation for dialect in dialects for path, operation in dialect.operations.items()}
    return {path: {"post": operation} for path, operation in (chats | others).items()}
