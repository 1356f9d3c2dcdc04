"""The routes of OpenAI's API."""

from gateway.answering.budget import MAX_CANDIDATES
from gateway.dialects.exchange import Dialect
from gateway.dialects.openapi import CONTEXT_TOKEN_RATIO, DETECTORS, PROBLEM, RETRIEVAL_MODE, Schema, operation
from gateway.dialects.registration import ChatRoute, Registration, always

TAG = "openai"

_REQUEST: Schema = {
    "type": "object",
    "description": "A chat completion request of the OpenAI API. Without `index_name`, or with tools, the model "
    "receives the request unchanged.",
    "required": ["messages"],
    "properties": {
        "model": {"type": "string"},
        "messages": {"type": "array", "items": {"type": "object"}, "minItems": 1},
        "stream": {"type": "boolean", "default": False},
        "index_name": {"type": "string", "description": "Index to search"},
        "context_token_ratio": CONTEXT_TOKEN_RATIO,
        "retrieval": {
            "type": "object",
            "properties": {
                "mode": RETRIEVAL_MODE,
                "top": {"type": "integer", "minimum": 1, "maximum": MAX_CANDIDATES},
                "similarity_threshold": {"type": "number", "minimum": -1, "maximum": 1},
            },
        },
        "detectors": DETECTORS,
    },
    "example": {
        "model": "extractive",
        "index_name": "handbook",
        "messages": [{"role": "user", "content": "When will the pivot bearing be renewed?"}],
    },
}


_PROMPT = {
    "type": "string",
    "description": "A text, or a list of its token ids in cl100k_base, or a list with one of these",
}
_COMPLETION: Schema = {
    "type": "object",
    "description": "A completion request of the OpenAI API. The model receives the prompt as one user message.",
    "required": ["prompt"],
    "properties": {"prompt": _PROMPT}
    | {name: schema for name, schema in _REQUEST["properties"].items() if name != "messages"},
    "example": {"model": "extractive", "index_name": "handbook", "prompt": "When will the bearing be renewed?"},
}


def registration(openai: Dialect, completions: Dialect) -> Registration:
    """Return the registration of the dialects.

    Args:
        openai: The dialect of chat completions.
        completions: The dialect of text completions.
    """
    chat_operation = operation(
        "Chat completion, with retrieval if index_name is given",
        TAG,
        {"application/json": {"schema": _REQUEST}},
        {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}},
        PROBLEM,
    )
    deployment_operation = chat_operation | {
        "summary": "Chat completion by the model in the path, for Azure's clients",
        "parameters": [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}],
    }
    completion_operation = operation(
        "Text completion, with retrieval if index_name is given",
        TAG,
        {"application/json": {"schema": _COMPLETION}},
        {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}},
        PROBLEM,
    )
    return Registration(
        chats=(
            ChatRoute("/v1/completions", always(completions), completion_operation),
            ChatRoute("/v1/chat/completions", always(openai), chat_operation),
            # Azure's clients send the model in the path, and an API version, which the gateway ignores.
            ChatRoute("/openai/deployments/{model:path}/chat/completions", always(openai), deployment_operation),
        ),
        tags={TAG: "OpenAI's API. `index_name` requests retrieval."},
    )
