"""Texts as token ids: clients of OpenAI's embeddings split texts with its tokenizer."""

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
    """Return the text of tokens.

    Characters that a client has split become replacement characters.

    Raises:
        InvalidRequest: An id is no token's; ``fields`` and ``path`` locate the ids.
    """
    encoding = _encoding()
    if all(0 <= each < encoding.n_vocab for each in ids):
        with contextlib.suppress(KeyError):  # some ids within the range have no token
            text: str = encoding.decode(ids)
            return text
    raise fields.wrong(path, f"has an id that no token of {_ENCODING} has")


@functools.cache
def _encoding() -> Any:
    with warnings.catch_warnings():
        # It reads its tables in a way that the standard library deprecates.
        warnings.simplefilter("ignore", DeprecationWarning)
        # Imported here, because it costs 80 MB, and few gateways get token ids.
        import bpe_openai  # type: ignore[import-untyped]  # shipped without types

        return bpe_openai.get_encoding(_ENCODING)
