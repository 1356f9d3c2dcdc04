"""OpenAI's tokenizers."""

import functools
import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from generator.domain import ChatMessage
from generator.tokenizers.estimate import conversation

ENCODINGS = ("cl100k_base", "o200k_base")

# Models by the beginning of their name, the longest first.
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
# The library refuses a text of more than 200,000 tokens. A token is at least a byte, a character at most four.
_MOST_ASCII = 200_000
_MOST_CHARACTERS = 50_000
# Both encodings first part a text by a pattern, and no token reaches across. After a letter or a digit the pattern
# ends a part before each of these, and what follows is parted as if it stood alone.
_CUTS = re.compile(r"(?<=[^\W_])[ \n\t.,;:!?()\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f]")


class OpenAITokens:
    """Counts with an encoding of OpenAI's, which is loaded when the first text is counted (0.15 s, 80 MB).

    About 25 MB of English a second on one core.

    Args:
        encoding: One of `ENCODINGS`.
    """

    exact = True

    def __init__(self, encoding: str) -> None:
        self._name = encoding

    @property
    def counting(self) -> str:
        """As the encoding is called."""
        return self._name

    def count(self, text: str) -> int:
        """Tokens; special tokens that stand in the text count as the text they are."""
        encoding = _encoding(self._name)
        most = _MOST_ASCII if text.isascii() else _MOST_CHARACTERS
        return sum(len(encoding.encode_ordinary(piece)) for piece in pieces(text, most))

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Of each text."""
        return [self.count(text) for text in texts]

    def count_messages(self, messages: Sequence[ChatMessage]) -> int:
        """Tokens of a conversation, with what OpenAI says its template adds."""
        return conversation(self.count, messages)


def encoding_of(model: str) -> str | None:
    """The encoding of a model of OpenAI's; None for another model."""
    return next((encoding for beginning, encoding in _MODELS if model.startswith(beginning)), None)


def pieces(text: str, most: int) -> Iterator[str]:
    """Pieces of at most so many characters that have as many tokens together as the text.

    A run without a place to cut is cut anywhere, which can add two tokens a cut.
    """
    start = 0
    while len(text) - start > most:
        end = start + most
        # The last place is near the end of the window, so it is looked for there first.
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
        # It reads its tables in a way that the standard library no longer recommends.
        warnings.simplefilter("ignore", DeprecationWarning)
        # Imported here: it costs 80 MB, which only who needs it shall pay.
        import bpe_openai  # type: ignore[import-untyped]  # shipped without types

        return bpe_openai.get_encoding(name)
