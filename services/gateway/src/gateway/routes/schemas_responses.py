"""What the routes of a tenant's responses give, for the OpenAPI document."""

from typing import Any

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_NAME: Schema = {"type": ["string", "null"]}
_TIME: Schema = {"type": ["string", "null"], "format": "date-time"}
_TOKENS: Schema = {"type": ["integer", "null"], "minimum": 0}

TENANT_RESPONSE: Schema = {
    "type": "object",
    "properties": {
        "id": _TEXT,
        "status": {
            "type": "string",
            "enum": ["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"],
        },
        "reason": {**_NAME, "description": "Code of the error, or why it is incomplete"},
        "model": _NAME,
        "background": {"type": "boolean"},
        "user": {**_NAME, "description": "Null where the request named none"},
        "issuer": {**_NAME, "description": "Of the token that named the user; null: the user is a key's"},
        "frontend": {**_TEXT, "description": "Name of its front end"},
        "created_at": _TIME,
        "completed_at": _TIME,
        "input_tokens": _TOKENS,
        "output_tokens": _TOKENS,
        "bytes": {"type": "integer", "minimum": 0, "description": "What it takes in the store, compressed"},
    },
}
TENANT_RESPONSE_PAGE: Schema = {
    "type": "object",
    "properties": {
        "responses": {"type": "array", "items": TENANT_RESPONSE},
        "next_page_token": {"type": ["string", "null"], "description": "Gets the next page; null at the end"},
    },
}
DELETED_RESPONSE: Schema = {"type": "object", "properties": {"id": _TEXT, "deleted": {"const": True}}}
