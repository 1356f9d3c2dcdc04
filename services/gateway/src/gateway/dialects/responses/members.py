"""Renders members of a response: search results, token counts, errors."""

from typing import Any

from servicekit.errors import CausewayError, RateLimited, http_status

from gateway.dialects.problem import SERVER_ERROR
from gateway.dialects.responses.citations import file_id
from gateway.domain import Passage, Usage
from gateway.domain.deltas import members_of


def search_result(passage: Passage) -> dict[str, Any]:
    """Return a passage as a result of file search."""
    metadata = members_of(passage.metadata_json or b"{}")
    scalars = {name: value for name, value in metadata.items() if isinstance(value, str | int | float)}
    attributes = {name: value if isinstance(value, str | bool) else float(value) for name, value in scalars.items()}
    return {
        "file_id": file_id(passage),
        "filename": passage.sourcefile,
        "score": min(1.0, max(0.0, float(passage.relevance))),
        "text": passage.text,
        "attributes": attributes,
    }


def usage_of(usage: Usage | None) -> dict[str, Any] | None:
    """Return the token counts, with the details that the model server sends."""
    if usage is None:
        return None
    counts = members_of(usage.raw_json) if usage.raw_json else {}
    prompt, answered = _details(counts, "prompt_tokens_details"), _details(counts, "completion_tokens_details")
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": token_count(prompt, "cached_tokens"),
            "cache_write_tokens": token_count(prompt, "cache_write_tokens"),
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": token_count(answered, "reasoning_tokens")},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _details(counts: dict[str, Any], name: str) -> dict[str, Any]:
    return value if isinstance(value := counts.get(name), dict) else {}


def token_count(counts: dict[str, Any], name: str) -> int:
    """Return a token count of a model server; 0 if it is absent or not a whole number."""
    return value if type(value := counts.get(name)) is int else 0


def error_of(error: CausewayError) -> dict[str, str]:
    """Return the ``error`` of a response: a code of the API reference, and the message for the client."""
    if isinstance(error, RateLimited):
        return {"code": "rate_limit_exceeded", "message": error.message}
    code = "server_error" if http_status(error) >= SERVER_ERROR else "invalid_prompt"
    return {"code": code, "message": error.message}
