"""Texts that come as ids of tokens: clients of OpenAI's embeddings cut their texts by its tokenizer."""

import functools
import warnings
from collections.abc import Sequence
from typing import Any

ENCODING = "cl100k_base"
"""That of OpenAI's embedding models, which clients also take for models that they do not know."""


def text_of(ids: Sequence[int]) -> str | None:
    """Return the text of tokens; None where an id is no token's.

    Characters that a client has cut in the middle become replacement characters.
    """
    encoding = _encoding()
    if not all(0 <= each < encoding.n_vocab for each in ids):
        return None
    try:
        text: str = encoding.decode(ids)
    except KeyError:  # some ids within the range have no token
        return None
    return text


@functools.cache
def _encoding() -> Any:
    with warnings.catch_warnings():
        # It reads its tables in a way that the standard library no longer recommends.
        warnings.simplefilter("ignore", DeprecationWarning)
        # Imported here: it costs 80 MB, which only gateways need that get token ids.
        import bpe_openai  # type: ignore[import-untyped]  # shipped without types

        return bpe_openai.get_encoding(ENCODING)
