"""Counts the tokens of texts of any length with OpenAI's tokenizers.

A package that uses this module needs the extra ``openai-tokens``. The tables of an encoding need 80 MB of memory,
so this module loads them only when the encoding is first used.
"""

import functools
import re
import warnings
from collections.abc import Iterator
from typing import Any

# The library refuses a text of more than 200,000 tokens. A token has at least one byte, a character at most four.
_MAX_ASCII_CHARACTERS = 200_000
_MAX_CHARACTERS = 50_000
CUTS = re.compile(r"(?<=[^\W_])[ \n\t.,;:!?()\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f]")
"""Characters before which a text can be cut: the token counts of the parts add up to the count of the text.

Both encodings first split a text with a pattern, and no token crosses a split. After a letter or a digit, the
pattern splits before each of these characters. A cut at such a place does not change the other splits.
"""


def count(encoding_name: str, text: str) -> int:
    """Return the number of tokens; special tokens in the text count as plain text.

    Args:
        encoding_name: ``cl100k_base`` or ``o200k_base``.
        text: The text.
    """
    encode = encoding(encoding_name).encode_ordinary
    max_characters = _MAX_ASCII_CHARACTERS if text.isascii() else _MAX_CHARACTERS
    return sum(len(encode(piece)) for piece in pieces(text, max_characters))


def pieces(text: str, max_characters: int) -> Iterator[str]:
    """Yield the text in pieces whose token counts add up to the count of the text.

    A run of characters without a possible split is cut at any character. Such a cut can add two tokens.

    Args:
        text: The text.
        max_characters: The maximum number of characters of a piece.
    """
    start = 0
    while len(text) - start > max_characters:
        end = start + max_characters
        # The last possible split is near the end of the window, so the search begins there.
        for reach in (1_000, max_characters):
            splits = [match.start() for match in CUTS.finditer(text, max(start + 1, end - reach), end)]
            if splits:
                end = splits[-1]
                break
        yield text[start:end]
        start = end
    yield text[start:]


@functools.cache
def encoding(name: str) -> Any:
    """Return an encoding of OpenAI; the first call for each encoding loads its tables in 0.15 s."""
    with warnings.catch_warnings():
        # The library uses a deprecated function of the standard library.
        warnings.simplefilter("ignore", DeprecationWarning)
        import bpe_openai  # type: ignore[import-untyped]  # shipped without types

        return bpe_openai.get_encoding(name)
