"""The OpenAPI description of the guardrails orchestrator's routes."""

from typing import Any

from gateway.dialects.openapi import Schema

TAG = "guardrails"
ERROR: Schema = {
    "type": "object",
    "required": ["code", "details"],
    "properties": {"code": {"type": "integer"}, "details": {"type": "string"}},
}

_TEXT: Schema = {"type": "string"}
_MESSAGES: Schema = {"type": "array", "items": {"type": "object"}, "minItems": 1}
_DETECTORS: Schema = {
    "type": "object",
    "description": "Detectors by id, each with its parameters",
    "additionalProperties": {"type": "object"},
    "minProperties": 1,
}
_DETECTORS_BY_DIRECTION: Schema = {
    "type": "object",
    "description": "Detectors by direction and id. Parameters may have `threshold`, `action` (report, redact, "
    "block) and `on_error` (block, allow).",
    "properties": {direction: {"type": "object"} for direction in ("input", "context", "output")},
}
_OPTIONS = {
    "detectors": _DETECTORS_BY_DIRECTION,
    "stream": {"type": "boolean", "default": False},
    "chunking": {"enum": ["sentence", "minimal"], "default": "sentence"},
    "input_scope": {"enum": ["conversation", "all", "last"], "default": "conversation"},
}
RESULT: Schema = {
    "type": "object",
    "required": ["detection_type", "detection", "detector_id", "score"],
    "properties": {
        "start": {
            "type": "integer",
            "description": "First code point; absent if the finding is about the whole text",
        },
        "end": {"type": "integer", "description": "Position after the last code point"},
        "text": _TEXT,
        "detection_type": _TEXT,
        "detection": _TEXT,
        "detector_id": _TEXT,
        "score": {"type": "number"},
    },
}
DETECTIONS: Schema = {
    "type": "object",
    "required": ["detections"],
    "properties": {"detections": {"type": "array", "items": RESULT}},
}


def _object(required: dict[str, Schema], optional: dict[str, Schema], example: Any) -> Schema:
    return {"type": "object", "required": [*required], "properties": required | optional, "example": example}


_REGEX = {"regex": {"regex": ["email"]}}
_EXAMPLE_TEXT = "Write to ann@example.org."
CONTENT = _object({"content": _TEXT, "detectors": _DETECTORS}, {}, {"content": _EXAMPLE_TEXT, "detectors": _REGEX})
CHAT = _object(
    {"messages": _MESSAGES, "detectors": _DETECTORS},
    {"tools": {"type": "array", "items": {"type": "object"}}},
    {"messages": [{"role": "user", "content": _EXAMPLE_TEXT}], "detectors": {"judge": {}}},
)
CONTEXT = _object(
    {
        "content": _TEXT,
        "context_type": {"enum": ["docs", "url"]},
        "context": {"type": "array", "items": _TEXT, "minItems": 1},
        "detectors": _DETECTORS,
    },
    {},
    {
        "content": "The bearing is renewed every nine years.",
        "context_type": "docs",
        "context": ["The pivot bearing is renewed every nine years."],
        "detectors": {"groundedness": {}},
    },
)
GENERATED = _object(
    {"prompt": _TEXT, "generated_text": _TEXT, "detectors": _DETECTORS},
    {},
    {"prompt": "Who is Ann?", "generated_text": _EXAMPLE_TEXT, "detectors": {"judge": {}}},
)
_COMPLETION = _object(
    {"model": _TEXT, "messages": _MESSAGES},
    _OPTIONS,
    {
        "model": "extractive",
        "messages": [{"role": "user", "content": "Hello"}],
        "detectors": {"output": _REGEX},
    },
)
_TEXT_COMPLETION = _object(
    {"model": _TEXT, "prompt": _TEXT},
    _OPTIONS,
    {"model": "extractive", "prompt": "Hello", "detectors": {"output": _REGEX}},
)
_GENERATION = _object(
    {"model_id": _TEXT, "prompt": _TEXT, "detectors": _DETECTORS},
    {"text_gen_parameters": {"type": "object"}},
    {"model_id": "extractive", "prompt": "Hello", "detectors": {"judge": {}}},
)
_GENERATED_ANSWER: Schema = {
    "type": "object",
    "properties": {"generated_text": _TEXT, "input_token_count": {"type": "integer"}} | DETECTIONS["properties"],
}
REFUSALS = {
    "400": "The body is not JSON",
    "404": "The detector or model does not exist",
    "413": "The body is too large",
    "415": "The media type of the body is not supported",
    "422": "The request is invalid; the details name the field",
    "429": "A detector or a model server is overloaded",
    "503": "A service is unavailable; see Retry-After",
    "504": "A detector took too long",
}


def paths() -> dict[str, Schema]:
    """Return the OpenAPI description of each path that is not a FastAPI route."""
    lines = {"application/x-ndjson": {"schema": {"type": "string", "description": "One JSON object on each line"}}}
    answer: Schema = {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}}
    return {
        "/api/v2/chat/completions-detection": _operation(
            "Chat completion with detections", {"application/json": {"schema": _COMPLETION}}, answer
        ),
        "/api/v2/text/completions-detection": _operation(
            "Text completion with detections", {"application/json": {"schema": _TEXT_COMPLETION}}, answer
        ),
        "/api/v2/text/generation-detection": _operation(
            "Text generation with detections",
            {"application/json": {"schema": _GENERATION}},
            {"application/json": {"schema": _GENERATED_ANSWER}},
        ),
        "/api/v2/text/detection/stream-content": _operation("Findings in a streamed text", lines, lines),
    }


def _operation(summary: str, body: Schema, answer: Schema) -> Schema:
    error = {"application/json": {"schema": ERROR}}
    return {
        "summary": summary,
        "tags": [TAG],
        "requestBody": {"required": True, "content": body},
        "responses": {
            "200": {"description": "The answer", "content": answer},
            **{status: {"description": text, "content": error} for status, text in REFUSALS.items()},
        },
    }
