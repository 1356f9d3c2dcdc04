"""Decodes token ids, because clients of OpenAI's embeddings API may send tokenized texts."""

import contextlib
import functools
import warnings
from collections.abc import Sequence
from typing import Any

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
    encoding = _encoding()
    if all(0 <= token_id < encoding.n_vocab for token_id in ids):
        with contextlib.suppress(KeyError):  # some ids within the range have no token
            text: str = encoding.decode(ids)
            return text
    raise fields.wrong(path, f"has an id that is not a token of {_ENCODING}")


@functools.cache
def _encoding() -> Any:
    with warnings.catch_warnings():
        # The library uses a deprecated function of the standard library.
        warnings.simplefilter("ignore", DeprecationWarning)
        # A lazy import, because the library needs 80 MB and few gateways receive token ids.
        import bpe_openai  # type: ignore[import-untyped]  # shipped without types

        return bpe_openai.get_encoding(_ENCODING)
