"""The routes of OpenAI's API."""

from gateway.answering.budget import MOST_CANDIDATES
from gateway.dialects.exchange import Dialect
from gateway.dialects.openapi import DETECTORS, PROBLEM, RETRIEVAL_MODE, Schema, operation
from gateway.dialects.registration import ChatRoute, Registration, always

TAG = "openai"

_REQUEST: Schema = {
    "type": "object",
    "description": "A chat completion request of the OpenAI API. Without `index_name`, or with tools, it goes "
    "to the model unchanged.",
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
                "mode": RETRIEVAL_MODE,
                "top": {"type": "integer", "minimum": 1, "maximum": MOST_CANDIDATES},
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
    "description": "One text; also as the ids of its tokens in cl100k_base, or as a list of one of these",
}
_COMPLETION: Schema = {
    "type": "object",
    "description": "A completion request of the OpenAI API. The prompt is sent as one message of a user.",
    "required": ["prompt"],
    "properties": {"prompt": _PROMPT}
    | {name: schema for name, schema in _REQUEST["properties"].items() if name != "messages"},
    "example": {"model": "extractive", "index_name": "handbook", "prompt": "When will the bearing be renewed?"},
}


def registration(openai: Dialect, completions: Dialect) -> Registration:
    """Register the dialects.

    Args:
        openai: The dialect of chat completions.
        completions: The dialect of text completions.
    """
    described = operation(
        "Chat completion, with retrieval if index_name is given",
        TAG,
        {"application/json": {"schema": _REQUEST}},
        {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}},
        PROBLEM,
    )
    of_deployment = described | {
        "summary": "Chat completion by the model in the path, for Azure's clients",
        "parameters": [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}],
    }
    of_text = operation(
        "Text completion, with retrieval if index_name is given",
        TAG,
        {"application/json": {"schema": _COMPLETION}},
        {"application/json": {"schema": {"type": "object"}}, "text/event-stream": {}},
        PROBLEM,
    )
    return Registration(
        chats=(
            ChatRoute("/v1/completions", always(completions), of_text),
            ChatRoute("/v1/chat/completions", always(openai), described),
            # Azure's clients put the model in the path, and add an API version, which has no effect.
            ChatRoute("/openai/deployments/{model:path}/chat/completions", always(openai), of_deployment),
        ),
        tags={TAG: "OpenAI's API; `index_name` turns retrieval on."},
    )
