"""The OpenAPI schemas of a tenant's responses."""

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
        "reason": {**_NAME, "description": "Code of the error, or the reason of an incomplete response"},
        "model": _NAME,
        "background": {"type": "boolean"},
        "user": {**_NAME, "description": "null if the request named no user"},
        "issuer": {**_NAME, "description": "Issuer of the user's token; null for a user of an API key"},
        "frontend": {**_TEXT, "description": "Name of the front end"},
        "created_at": _TIME,
        "completed_at": _TIME,
        "input_tokens": _TOKENS,
        "output_tokens": _TOKENS,
        "bytes": {"type": "integer", "minimum": 0, "description": "Compressed size in the store"},
    },
}
TENANT_RESPONSE_PAGE: Schema = {
    "type": "object",
    "properties": {
        "responses": {"type": "array", "items": TENANT_RESPONSE},
        "next_page_token": {"type": ["string", "null"], "description": "Token of the next page; null at the end"},
    },
}
DELETED_RESPONSE: Schema = {"type": "object", "properties": {"id": _TEXT, "deleted": {"const": True}}}
