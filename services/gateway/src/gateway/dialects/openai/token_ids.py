"""Decodes token ids, because clients of OpenAI's embeddings and text completions may send tokenized texts."""

import contextlib
from collections.abc import Sequence

from servicekit import openai_tokens

from gateway.dialects.json_fields import Fields

_ENCODING = "cl100k_base"
"""The encoding of OpenAI's embedding models, which clients also use for unknown models."""


def is_id(value: object) -> bool:
    """Return whether a JSON value may be a token id."""
    return isinstance(value, int) and not isinstance(value, bool)


def text_of(ids: Sequence[int], fields: Fields, path: str) -> str:
    """Return the text of a list of token ids.

    If the list has only some of a character's bytes, the text has a replacement character (U+FFFD) in its place.

    Raises:
        InvalidRequest: An id is not the id of a token. ``fields`` and ``path`` name the field.
    """
    encoding = openai_tokens.encoding(_ENCODING)
    if all(0 <= token_id < encoding.n_vocab for token_id in ids):
        with contextlib.suppress(KeyError):  # some ids within the range have no token
            text: str = encoding.decode(ids)
            return text
    raise fields.invalid(path, f"has an id that is not a token of {_ENCODING}")
