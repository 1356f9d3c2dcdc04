"""Texts that come as ids of tokens: clients of OpenAI's embeddings cut their texts by its tokenizer."""

import contextlib
import functools
import warnings
from collections.abc import Sequence
from typing import Any

from gateway.dialects.json_fields import Fields

_ENCODING = "cl100k_base"
"""That of OpenAI's embedding models, which clients also take for models that they do not know."""


def is_id(said: object) -> bool:
    """Return whether a member of JSON may be a token's id."""
    return isinstance(said, int) and not isinstance(said, bool)


def text_of(ids: Sequence[int], fields: Fields, path: str) -> str:
    """Return the text of tokens.

    Characters that a client has cut in the middle become replacement characters.

    Raises:
        InvalidRequest: An id is no token's; ``fields`` and ``path`` say where the ids are.
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
        # It reads its tables in a way that the standard library no longer recommends.
        warnings.simplefilter("ignore", DeprecationWarning)
        # Imported here: it costs 80 MB, which only gateways need that get token ids.
        import bpe_openai  # type: ignore[import-untyped]  # shipped without types

        return bpe_openai.get_encoding(_ENCODING)
