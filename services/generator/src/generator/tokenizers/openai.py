"""OpenAI's tokenizers."""

from collections.abc import Sequence

from servicekit import openai_tokens

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


class OpenAITokens:
    """Counts with an encoding of OpenAI: about 25 MB of English per second on one core.

    The first count loads the encoding (0.15 s, 80 MB).

    Args:
        encoding: One of `ENCODINGS`.
    """

    exact = True

    def __init__(self, encoding: str) -> None:
        self.counting = encoding

    def count(self, text: str) -> int:
        """Return the number of tokens; special tokens in the text count as plain text."""
        return openai_tokens.count(self.counting, text)

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Return the count of each text."""
        return [self.count(text) for text in texts]

    def count_messages(self, messages: Sequence[ChatMessage]) -> int:
        """Return the tokens of a conversation, with the tokens of the template that OpenAI documents."""
        return count_conversation(self.count, messages)


def encoding_of(model: str) -> str | None:
    """Return the encoding of an OpenAI model; None for other models."""
    return next((encoding for beginning, encoding in _MODELS if model.startswith(beginning)), None)
