"""OpenAI's tokenizers."""

import functools
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from generator.domain import ChatMessage
from generator.tokenizers.estimate import count_conversation

ENCODINGS = ("cl100k_base", "o200k_base")

# Models by the prefix of their name, the longest first.
_MODELS = (
    ("chatgpt-4o", "o200k_base"),
    ("gpt-3.5", "cl100k_base"),
    ("gpt-4.1", "o200k_base"),
    ("gpt-4o", "o200k_base"),
    ("gpt-4", "cl100k_base"),
    ("gpt-5", "o200k_base"),
    ("o1", "o200k_base"),
    ("o3", "o200k_base"),
    ("o4", "o200k_base"),
)
# The library refuses a text of more than 200,000 tokens. A token has at least one byte, a character at most four.
_MOST_ASCII = 200_000
_MOST_CHARACTERS = 50_000
# Both encodings first split a text with a pattern, and no token crosses a split. After a letter or a digit, the
# pattern splits before each of these characters. A cut at such a place does not change the other splits.
_CUTS = re.compile(r"(?<=[^\W_])[ \n\t.,;:!?()\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f]")


class OpenAITokens:
    """Counts with an encoding of OpenAI: about 25 MB of English per second on one core.

    The first count loads the encoding (0.15 s, 80 MB).

    Args:
        encoding: One of `ENCODINGS`.
    """

    exact = True

    def __init__(self, encoding: str) -> None:
        self._name = encoding

    @property
    def counting(self) -> str:
        """Return the name of the encoding."""
        return self._name

    def count(self, text: str) -> int:
        """Return the number of tokens; special tokens in the text count as plain text."""
        encoding = _encoding(self._name)
        most = _MOST_ASCII if text.isascii() else _MOST_CHARACTERS
        return sum(len(encoding.encode_ordinary(piece)) for piece in pieces(text, most))

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Return the count of each text."""
        return [self.count(text) for text in texts]

    def count_messages(self, messages: Sequence[ChatMessage]) -> int:
        """Return the tokens of a conversation, with the tokens of the template that OpenAI documents."""
        return count_conversation(self.count, messages)


def encoding_of(model: str) -> str | None:
    """Return the encoding of an OpenAI model; None for other models."""
    return next((encoding for beginning, encoding in _MODELS if model.startswith(beginning)), None)


def pieces(text: str, most: int) -> Iterator[str]:
    """Yield the text in pieces whose token counts add up to the count of the text.

    A run of characters without a possible split is cut at any character. Such a cut can add two tokens.

    Args:
        text: The text.
        most: The maximum number of characters of a piece.
    """
    start = 0
    while len(text) - start > most:
        end = start + most
        # The last possible split is near the end of the window, so the search begins there.
        for reach in (1_000, most):
            places = [match.start() for match in _CUTS.finditer(text, max(start + 1, end - reach), end)]
            if places:
                end = places[-1]
                break
        yield text[start:end]
        start = end
    yield text[start:]


@functools.cache
def _encoding(name: str) -> Any:
    with warnings.catch_warnings():
        # The library calls a function that the standard library deprecates.
        warnings.simplefilter("ignore", DeprecationWarning)
        # Imported here, because it costs 80 MB.
        import bpe_openai  # type: ignore[import-untyped]  # shipped without types

        return bpe_openai.get_encoding(name)
