"""Tokens of a model without a tokenizer: words, or Chinese, Japanese or Korean characters, with leading spaces."""

import re
from collections.abc import Sequence

import msgspec

from generator.domain import ChatMessage

_WIDE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_PIECE = re.compile(rf"\s*(?:[{_WIDE}]|[^\s{_WIDE}]+)|\s+")


def pieces(text: str) -> list[str]:
    """Split a text into its pieces; their concatenation is the text."""
    return _PIECE.findall(text)


class PieceCounter:
    """Counts the pieces of a text as tokens; see `pieces`."""

    exact = True
    counting = "words"

    def count(self, text: str) -> int:
        """Return the number of pieces of a text."""
        return len(pieces(text))

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Return the count of each text."""
        return [self.count(text) for text in texts]

    def count_messages(self, messages: Sequence[ChatMessage]) -> int:
        """Return the number of pieces of the messages' texts, without a chat template."""
        return sum(self.count(text_of(message)) for message in messages)


def text_of(message: ChatMessage) -> str:
    """Return a message's text; for a list of parts, the parts' texts in separate lines."""
    if not message.content_json:
        return message.text
    parts = msgspec.json.decode(message.content_json)
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))
