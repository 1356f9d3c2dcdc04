"""The OpenAPI description of the chat routes, which FastAPI does not see."""

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI

from gateway import openapi_orchestrator, openapi_stages
from gateway.identity.access import TABLE, Role

_TAGS = [
    {"name": name, "description": text}
    for name, text in (
        ("openai", "As OpenAI's API has it; `index_name` turns retrieval on."),
        (
            openapi_stages.APRIL_2024,
            "Paths without a prefix speak it, too, unless the request or its front end tells another.",
        ),
        (openapi_stages.MAY_2024, "With files beside messages."),
        (openapi_stages.APRIL_2026, "Answers in `output_text`."),
        (openapi_stages.OPENAI_LIKE, "Answers in `choices`."),
        (openapi_stages.RAG, "Answers in `choices`; `/ask` takes one question."),
        ("retrieval", "Passages without an answer."),
        ("documents", "Files and texts in, and the jobs that make them findable."),
        ("indexes", "What there is, its settings, snapshots, rebuilds."),
        (
            openapi_orchestrator.TAG,
            "The guardrails orchestrator's API: generations with detections, detections alone.",
        ),
        ("front ends", "What chat pages ask for besides answers."),
        ("health", "For probes and scrapers."),
    )
]
"""In the order in which they are shown."""
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
# As the document writes the paths.
_ROLES = {path.replace(":path}", "}"): methods for path, methods in TABLE.items()}

_DETECTORS = {
    "type": "object",
    "description": "Detectors by direction: {input|context|output: {detector id: parameters}}. Parameters may "
    "hold `action` (report, redact, block) and `on_error` (block, allow).",
    "additionalProperties": {"type": "object", "additionalProperties": {"type": "object"}},
}

_MODE = {"type": "string", "enum": ["hybrid", "vectors", "text"], "default": "hybrid"}

_COMPLETION_REQUEST = {
    "type": "object",
    "description": "A chat completion request of the OpenAI API. Without `index_name`, or with tools, it goes "
    "to the model as it came.",
    "required": ["messages"],
    "properties": {
        "model": {"type": "string"},
        "messages": {"type": "array", "items": {"type": "object"}, "minItems": 1},
        "stream": {"type": "boolean", "default": False},
        "index_name": {"type": "string", "description": "Index to answer from"},
        "context_token_ratio": {"type": "number", "minimum": 0.2, "maximum": 0.8, "default": 0.5},
        "retrieval": {
            "type": "object",
            "properties": {
                "mode": _MODE,
                "top": {"type": "integer", "minimum": 1, "maximum": 1000},
                "similarity_threshold": {"type": "number", "minimum": -1, "maximum": 1},
            },
        },
        "detectors": _DETECTORS,
    },
    "example": {
        "model": "extractive",
        "index_name": "handbook",
        "messages": [{"role": "user", "content": "When will the pivot bearing be renewed?"}],
    },
}

_PROBLEM = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        },
        "detail": {"type": "string"},
    },
}


def describe(app: FastAPI) -> None:
    """Adds the chat routes to the application's OpenAPI document, and to all others the shape of their errors."""
    generate = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema  # as it was described before: FastAPI keeps the one that it made
        document = generate()
        document["paths"] = _paths() | document["paths"]
        document["tags"] = _TAGS
        document.setdefault("components", {})["securitySchemes"] = _SCHEMES
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                _describe_access(operation, _ROLES[path][method.upper()])
                _describe_errors(operation)
        for schema in ("HTTPValidationError", "ValidationError"):
            document.get("components", {}).get("schemas", {}).pop(schema, None)
        return document

    app.openapi = described  # type: ignore[method-assign]  # FastAPI's documented way to extend the document


def _describe_access(operation: dict[str, Any], role: Role) -> None:
    """Which role it takes, where the deployment asks who asks."""
    if role is Role.OPEN:
        operation["security"] = []
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
    schema = _PROBLEM
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


def _paths() -> dict[str, Any]:
    completion = _operation(
        "Chat completion, with retrieval where index_name is given",
        "openai",
        {"application/json": {"schema": _COMPLETION_REQUEST}},
        {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}},
        _PROBLEM,
    )
    return (
        {"/v1/chat/completions": {"post": completion}}
        | openapi_stages.paths(_operation, _DETECTORS)
        | openapi_orchestrator.paths()
    )


def _operation(
    summary: str, tag: str, bodies: dict[str, Any], answer: dict[str, Any], error: dict[str, Any]
) -> dict[str, Any]:
    refusals = {
        "400": "The request is wrong; the message names the field",
        "404": "No such index or model",
        "413": "The body is too large",
        "415": "The body is of a media type that is not read here",
        "429": "Over a quota; see Retry-After and x-ratelimit-…",
        "503": "A service that is needed is away, or there is too much to do; see Retry-After",
    }
    return {
        "summary": summary,
        "tags": [tag],
        "requestBody": {"required": True, "content": bodies},
        "responses": {
            "200": {"description": "The answer", "content": answer},
            **{
                status: {"description": text, "content": {"application/json": {"schema": error}}}
                for status, text in refusals.items()
            },
        },
    }
