"""OpenAI's embeddings: requests, and answers with vectors as numbers or in base64."""

import base64
import struct
from dataclasses import dataclass
from typing import Any

import msgspec
from servicekit.errors import InvalidRequest

from gateway.dialects.json_fields import Fields, members, value
from gateway.dialects.openai import token_ids
from gateway.domain.embeddings import EmbeddingModel, Embeddings

MOST_INPUTS = 2048
_LONGEST_INPUT = 100_000
"""In characters; more than a model reads, and the limit of one call of the retriever."""


@dataclass(frozen=True, slots=True)
class EmbeddingRequest:
    """An embedding request.

    Attributes:
        model: Empty: the default model.
        texts: One or more, none of them blank.
        in_base64: Vectors as little-endian 32-bit floats in base64, the default of OpenAI's client.
        dimensions: The requested length of the vectors, if any.
    """

    model: str
    texts: tuple[str, ...]
    in_base64: bool
    dimensions: int | None


def parse(body: bytes, model: str = "") -> EmbeddingRequest:
    """Parse a request.

    Args:
        body: The body.
        model: The model in the path, which has priority over the body's; may be empty.

    Raises:
        InvalidRequest: The request is invalid; the error names the field.
    """
    raw = members(body)
    names = ("model", "input", "encoding_format", "dimensions")
    fields = Fields({name: value(raw[name], name) for name in names if name in raw})
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
        raise fields.wrong("input", "must be a text, a list of token ids, or a list of those")
    if len(items) > MOST_INPUTS:
        raise fields.wrong("input", f"must have at most {MOST_INPUTS} texts")
    texts: list[str] = []
    for number, each in enumerate(items):
        path = "input" if len(items) == 1 else f"input[{number}]"
        text = _decoded(each, fields, path) if isinstance(each, list) else each
        if not isinstance(text, str):
            raise fields.wrong(path, "must be a text")
        if not text.strip():
            raise fields.wrong(path, "must not be blank")
        if len(text) > _LONGEST_INPUT:
            raise fields.wrong(path, f"must have at most {_LONGEST_INPUT} characters")
        texts.append(text)
    return tuple(texts)


def _decoded(ids: list[Any], fields: Fields, path: str) -> str:
    """Return the text of a list of token ids."""
    if not all(map(token_ids.is_id, ids)):
        raise fields.wrong(path, "must be a text, or a list of token ids")
    if len(ids) > _LONGEST_INPUT:
        raise fields.wrong(path, f"must have at most {_LONGEST_INPUT} tokens")
    return token_ids.text_of(ids, fields, path)


def check_dimensions(request: EmbeddingRequest, models: tuple[EmbeddingModel, ...]) -> None:
    """Check that the requested length is the model's: other lengths are not supported.

    Raises:
        InvalidRequest: Another length is requested.
    """
    for model in models:
        if request.model in ("", model.name):
            if request.dimensions not in (None, model.dimension):
                message = f"dimensions must be {model.dimension} with '{model.name}', or left out."
                raise InvalidRequest(message, field="dimensions")
            return


def render(embeddings: Embeddings, request: EmbeddingRequest) -> bytes:
    """Return the answer."""
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
