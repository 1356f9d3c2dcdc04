"""The chat routes of the Responses API."""

from gateway.dialects.exchange import Dialect
from gateway.dialects.openapi import DETECTORS, PROBLEM, Schema, operation
from gateway.dialects.registration import ChatRoute, Registration, always

TAG = "responses"

REQUEST: Schema = {
    "type": "object",
    "description": "A request of OpenAI's Responses API; docs/responses.md lists the supported members.",
    "properties": {
        "model": {"type": "string"},
        "input": {
            "description": "A text, or a list of items; required unless the request continues earlier items",
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}],
        },
        "instructions": {"type": "string"},
        "stream": {"type": "boolean", "default": False},
        "tools": {
            "type": "array",
            "items": {"type": "object"},
            "description": "`function`, `custom`, `namespace`, and `file_search` with names of indexes as "
            "`vector_store_ids`",
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
"""The schema of a request."""


COMPACT_REQUEST: Schema = {
    "type": "object",
    "description": "The conversation to summarise. The members have the same meaning as for `/v1/responses`; "
    "docs/responses.md lists all of them.",
    "properties": {name: REQUEST["properties"][name] for name in ("model", "input", "instructions", "detectors")}
    | {"previous_response_id": {"type": "string", "description": "The response that the input continues"}},
    "example": {"model": "gpt", "input": [{"role": "user", "content": "When will the bearing be renewed?"}]},
}
"""The schema of a request for a summary."""


def registration(responses: Dialect, compactions: Dialect) -> Registration:
    """Return the registration of the dialects.

    Args:
        responses: The dialect of ``/v1/responses``.
        compactions: The dialect of ``/v1/responses/compact``, which summarises conversations.
    """
    response_operation = operation(
        "Response, with retrieval if index_name or file_search is given",
        TAG,
        {"application/json": {"schema": REQUEST}},
        {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}},
        PROBLEM,
    )
    compaction_operation = operation(
        "Encrypted summary of a conversation, which replaces it in later requests",
        TAG,
        {"application/json": {"schema": COMPACT_REQUEST}},
        {"application/json": {"schema": {"type": "object"}}},
        PROBLEM,
    )
    return Registration(
        chats=(
            ChatRoute("/v1/responses", always(responses), response_operation, stores=True),
            ChatRoute(
                "/v1/responses/compact", always(compactions), compaction_operation, streaming=False, stores=True
            ),
        ),
        tags={TAG: "OpenAI's Responses API, with items as input and output."},
    )
