"""Parses requests of OpenAI's embeddings API and renders the vectors as numbers or in base64."""

import base64
import struct
from dataclasses import dataclass
from typing import Any

import msgspec
from servicekit.errors import InvalidRequest

from gateway.dialects.json_fields import Fields, members, pick
from gateway.dialects.openai import token_ids
from gateway.domain.embeddings import EmbeddingModel, Embeddings

MAX_INPUTS = 2048
"""The maximum number of texts in one request."""
_MAX_INPUT_LENGTH = 100_000
"""The maximum length of a text in characters. The retriever has the same limit."""


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """An embedding request.

    Attributes:
        model: The model, or empty for the default model.
        texts: The texts, at least one. No text is blank.
        in_base64: Whether to send a vector as little-endian 32-bit floats in base64, the default of OpenAI's
            client.
        dimensions: The requested length of the vectors, or None for the model's length.
    """

    model: str
    texts: tuple[str, ...]
    in_base64: bool
    dimensions: int | None


def parse(body: bytes, model: str = "") -> EmbeddingRequest:
    """Parse a request.

    Args:
        body: The body.
        model: The model in the path, which has priority over the model in the body; may be empty.

    Raises:
        InvalidRequest: The request is invalid; the error names the field.
    """
    fields = pick(members(body), ("model", "input", "encoding_format", "dimensions"))
    return EmbeddingRequest(
        model or fields.text("model"),
        _texts(fields.get("input"), fields),
        fields.one_of("encoding_format", ("float", "base64")) == "base64",
        fields.integer("dimensions", 1, 1_000_000),
    )


def _texts(items: Any, fields: Fields) -> tuple[str, ...]:
    if isinstance(items, str) or (isinstance(items, list) and items and token_ids.is_id(items[0])):
        items = [items]
    if not isinstance(items, list) or not items:
        raise fields.invalid(
            "input", "must be a text, a list of token ids, or a list of texts and lists of token ids"
        )
    if len(items) > MAX_INPUTS:
        raise fields.invalid("input", f"must have at most {MAX_INPUTS} texts")
    texts: list[str] = []
    for number, item in enumerate(items):
        path = "input" if len(items) == 1 else f"input[{number}]"
        text = _decoded(item, fields, path) if isinstance(item, list) else item
        if not isinstance(text, str):
            raise fields.invalid(path, "must be a text")
        if not text.strip():
            raise fields.invalid(path, "must not be blank")
        if len(text) > _MAX_INPUT_LENGTH:
            raise fields.invalid(path, f"must have at most {_MAX_INPUT_LENGTH} characters")
        texts.append(text)
    return tuple(texts)


def _decoded(ids: list[Any], fields: Fields, path: str) -> str:
    """Return the text of a list of token ids.

    Raises:
        InvalidRequest: The list has an invalid id, or too many ids.
    """
    if not all(map(token_ids.is_id, ids)):
        raise fields.invalid(path, "must be a text, or a list of token ids")
    if len(ids) > _MAX_INPUT_LENGTH:
        raise fields.invalid(path, f"must have at most {_MAX_INPUT_LENGTH} tokens")
    return token_ids.text_of(ids, fields, path)


def check_dimensions(request: EmbeddingRequest, models: tuple[EmbeddingModel, ...]) -> None:
    """Check that the requested length of the vectors is the model's length, which cannot change.

    Args:
        request: The request. If its model is not among the models, its length is not checked.
        models: The models, with the default model first.

    Raises:
        InvalidRequest: The request has another length.
    """
    for model in models:
        if request.model in ("", model.name):
            if request.dimensions not in (None, model.dimension):
                message = (
                    f"dimensions must be {model.dimension} for '{model.name}'. Set this value or remove the field."
                )
                raise InvalidRequest(message, field="dimensions")
            return


def render(embeddings: Embeddings, request: EmbeddingRequest) -> bytes:
    """Return the body of the answer."""
    return msgspec.json.encode(
        {
            "object": "list",
            "data": [
                {
                    "object": "embedding",
                    "index": index,
                    "embedding": _packed(vector) if request.in_base64 else list(vector),
                }
                for index, vector in enumerate(embeddings.vectors)
            ],
            "model": embeddings.model,
            "usage": {"prompt_tokens": embeddings.tokens, "total_tokens": embeddings.tokens},
        }
    )


def _packed(vector: Any) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
