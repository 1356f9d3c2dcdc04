"""The OpenAPI description of the chat routes, which FastAPI does not see."""

from typing import Any

from fastapi import FastAPI

_MESSAGE = {
    "type": "object",
    "required": ["role", "content"],
    "properties": {
        "role": {"type": "string", "enum": ["user", "assistant"]},
        "content": {"type": "string"},
    },
}

_DETECTORS = {
    "type": "object",
    "description": "Detectors by direction: {input|context|output: {detector id: parameters}}. Parameters may "
    "hold `action` (report, redact, block) and `on_error` (block, allow).",
    "additionalProperties": {"type": "object", "additionalProperties": {"type": "object"}},
}

_MODE = {"type": "string", "enum": ["hybrid", "vectors", "text"], "default": "hybrid"}

_OVERRIDES = {
    "type": "object",
    "description": "Settings for this turn; unknown ones are ignored, null and empty ones are as good as absent.",
    "properties": {
        "index": {"type": "string", "description": "Index to search"},
        "model": {"type": "string", "description": "Model to ask"},
        "retrieval_mode": _MODE,
        "top": {"type": "integer", "minimum": 1, "maximum": 50, "default": 3},
        "temperature": {"type": "number", "minimum": 0, "maximum": 2},
        "seed": {"type": "integer"},
        "max_tokens": {"type": "integer", "minimum": 1},
        "include_category": {"type": "string"},
        "exclude_category": {"type": "string"},
        "minimum_search_score": {"type": "number"},
        "detectors": _DETECTORS,
    },
}

_CHAT_REQUEST = {
    "type": "object",
    "required": ["messages"],
    "properties": {
        "messages": {"type": "array", "items": _MESSAGE, "minItems": 1},
        "context": {"type": "object", "properties": {"overrides": _OVERRIDES}},
        "session_state": {"description": "Comes back as it went in"},
    },
    "example": {
        "messages": [{"role": "user", "content": "When will the pivot bearing be renewed?"}],
        "context": {"overrides": {"index": "handbook", "top": 3}},
    },
}

_CHAT_ANSWER = {
    "type": "object",
    "properties": {
        "message": _MESSAGE,
        "context": {
            "type": "object",
            "properties": {
                "data_points": {"type": "object"},
                "thoughts": {"type": "array", "items": {"type": "object"}},
                "detections": {"type": "object"},
            },
        },
        "session_state": {},
    },
}

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
            "properties": {"mode": _MODE, "top": {"type": "integer"}},
        },
        "detectors": _DETECTORS,
    },
    "example": {
        "model": "extractive",
        "index_name": "handbook",
        "messages": [{"role": "user", "content": "When will the pivot bearing be renewed?"}],
    },
}

_ERROR = {"type": "object", "properties": {"error": {"type": "string"}}}
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
        document = generate()
        document["paths"] |= _paths()
        for operations in document["paths"].values():
            for operation in operations.values():
                _describe_errors(operation["responses"])
        for schema in ("HTTPValidationError", "ValidationError"):
            document.get("components", {}).get("schemas", {}).pop(schema, None)
        return document

    app.openapi = described  # type: ignore[method-assign]  # FastAPI's documented way to extend the document


def _describe_errors(responses: dict[str, Any]) -> None:
    # FastAPI's own status for what is wrong with a request; ours is 400.
    responses.pop("422", None)
    for status, response in responses.items():
        if status >= "400":
            response.setdefault("content", {"application/json": {"schema": _PROBLEM}})


def _paths() -> dict[str, Any]:
    completion = _operation(
        "Chat completion, with retrieval where `index_name` is given",
        "openai",
        _COMPLETION_REQUEST,
        {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {"schema": {"type": "string"}}},
        _PROBLEM,
    )
    paths = {"/v1/chat/completions": {"post": completion}}
    for prefix in ("", "/2024-04"):
        unary = {"application/json": {"schema": _CHAT_ANSWER}}
        lines = {"application/json-lines": {"schema": {"type": "string", "description": "One JSON object a line"}}}
        tag = "AI chat protocol, April 2024"
        paths[f"{prefix}/chat"] = {"post": _operation("Answer in one piece", tag, _CHAT_REQUEST, unary, _ERROR)}
        paths[f"{prefix}/chat/stream"] = {
            "post": _operation("Answer as it is made", tag, _CHAT_REQUEST, lines, _ERROR)
        }
    return paths


def _operation(
    summary: str, tag: str, request: dict[str, Any], answer: dict[str, Any], error: dict[str, Any]
) -> dict[str, Any]:
    refusals = {
        "400": "The request is wrong; the message names the field",
        "404": "No such index or model",
        "413": "The body is too large",
        "415": "The body is not JSON",
        "503": "A service that is needed is away; see Retry-After",
    }
    return {
        "summary": summary,
        "tags": [tag],
        "requestBody": {"required": True, "content": {"application/json": {"schema": request}}},
        "responses": {
            "200": {"description": "The answer", "content": answer},
            **{
                status: {"description": text, "content": {"application/json": {"schema": error}}}
                for status, text in refusals.items()
            },
        },
    }
