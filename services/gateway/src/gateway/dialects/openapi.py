"""The shared parts of the dialects' OpenAPI documents."""

from typing import Any

from gateway.dialects import turn_settings

Schema = dict[str, Any]
"""A JSON Schema, or another object of an OpenAPI document."""

RETRIEVAL_MODE = {"type": "string", "enum": ["hybrid", "vectors", "text"], "default": "hybrid"}

CONTEXT_TOKEN_RATIO: Schema = {
    "type": "number",
    "minimum": turn_settings.MIN_CONTEXT_RATIO,
    "maximum": turn_settings.MAX_CONTEXT_RATIO,
    "default": turn_settings.DEFAULT_CONTEXT_RATIO,
}

DETECTORS: Schema = {
    "type": "object",
    "description": "Detectors by direction: {input|context|output: {detector id: parameters}}. Parameters may "
    "have `action` (report, redact, block) and `on_error` (block, allow).",
    "additionalProperties": {"type": "object", "additionalProperties": {"type": "object"}},
}

PROBLEM: Schema = {
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
"""The schema of an error of OpenAI's API."""


def operation(summary: str, tag: str, bodies: Schema, answer: Schema, error: Schema) -> Schema:
    """Return the description of a chat route.

    Args:
        summary: One line.
        tag: The group of the route.
        bodies: The request bodies by media type.
        answer: The answers by media type.
        error: The schema of errors.
    """
    refusals = {
        "400": "The request is invalid; the message names the field",
        "404": "The index or model does not exist",
        "413": "The body is too large",
        "415": "The media type of the body is not supported",
        "429": "A quota is exhausted; see Retry-After and x-ratelimit-…",
        "503": "A service is unavailable, or the gateway is overloaded; see Retry-After",
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
