"""Tokenizers of models; see `embedding.port.Tokenizer`."""

import re
from pathlib import Path

import tokenizers

from embedding.port import is_unicode

# Nearly every text has more of these pieces than it has tokens of a trained tokenizer, for which a medium English
# word is one token.
_PIECE = re.compile(r"[^\W\d_]{1,4}|\d{1,2}|\S")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")


class FileTokenizer:
    """A model's tokenizer in Hugging Face's format.

    Args:
        path: The tokenizer.json.
    """

    def __init__(self, path: Path) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        # The file may enable truncation and padding; the caller truncates.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # "[SEP]" in a document is plain text

    def count(self, text: str) -> int:
        """Return the number of tokens of the text."""
        return len(self.spans(text))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the span of each token in code points; omit empty tokens (an inserted space)."""
        return [(start, end) for start, end in self._encode(text).offsets if start < end]

    def _encode(self, text: str) -> tokenizers.Encoding:
        if not is_unicode(text):
            raise ValueError("The text contains lone surrogates.")
        return self._tokenizer.encode(text, add_special_tokens=False)


class ApproximateTokenizer:
    """Approximates an unknown tokenizer: up to four letters, up to two digits, or one other character.

    It usually counts more tokens than trained tokenizers, so a text within the limit usually also fits the model.
    """

    def count(self, text: str) -> int:
        """Return an estimate of the number of tokens, which is usually too high."""
        return len(self.spans(text))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the span of each token in code points; a Chinese, Japanese or Korean character is one token."""
        if not is_unicode(text):
            raise ValueError("The text contains lone surrogates.")
        spans = []
        for piece in _PIECE.finditer(text):
            start, end = piece.span()
            if text[start:end].isascii() or not _WIDE.search(text, start, end):
                spans.append((start, end))
            else:
                spans += [(at, at + 1) for at in range(start, end)]
        return spans
