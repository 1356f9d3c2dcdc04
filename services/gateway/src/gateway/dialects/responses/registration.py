"""The route of the Responses API."""

from gateway.dialects.exchange import Dialect
from gateway.dialects.openapi import DETECTORS, PROBLEM, Schema, operation
from gateway.dialects.registration import ChatRoute, Registration, always

TAG = "responses"

REQUEST: Schema = {
    "type": "object",
    "description": "A request of OpenAI's Responses API; docs/responses.md says which members are supported.",
    "required": ["input"],
    "properties": {
        "model": {"type": "string"},
        "input": {
            "description": "A text, or a list of items",
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}],
        },
        "instructions": {"type": "string"},
        "stream": {"type": "boolean", "default": False},
        "tools": {
            "type": "array",
            "items": {"type": "object"},
            "description": "`function`, `custom`, and `file_search` with names of indexes as `vector_store_ids`",
        },
        "index_name": {"type": "string", "description": "Index to answer from"},
        "detectors": DETECTORS,
    },
    "example": {
        "model": "extractive",
        "index_name": "handbook",
        "input": "When will the pivot bearing be renewed?",
    },
}
"""Describes a request."""


def registration(responses: Dialect) -> Registration:
    """Register the dialect.

    Args:
        responses: The dialect.
    """
    described = operation(
        "Response, with retrieval where index_name or file_search is given",
        TAG,
        {"application/json": {"schema": REQUEST}},
        {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}},
        PROBLEM,
    )
    return Registration(
        chats=(ChatRoute("/v1/responses", always(responses), described, stores=True),),
        tags={TAG: "OpenAI's Responses API: items in, items out."},
    )
