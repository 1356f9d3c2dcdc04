"""Tokenizers of models; see `embedding.port.Tokenizer`."""

import re
from pathlib import Path

import tokenizers

from embedding.port import is_unicode

# More pieces than a trained tokenizer makes of nearly any text: an English word of the middle length is one token.
_PIECE = re.compile(r"[^\W\d_]{1,4}|\d{1,2}|\S")
_WIDE = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")


class FileTokenizer:
    """A model's own, from Hugging Face's format.

    Args:
        path: Its tokenizer.json.
    """

    def __init__(self, path: Path) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        # A file may ask for both; here the caller decides.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # "[SEP]" in a document is five characters of it

    def count(self, text: str) -> int:
        """How many tokens the text has."""
        return len(self.spans(text))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where each token stands, in code points; tokens of no characters (a put-in space) are left out."""
        return [(start, end) for start, end in self._encode(text).offsets if start < end]

    def _encode(self, text: str) -> tokenizers.Encoding:
        if not is_unicode(text):
            raise ValueError("The text holds lone surrogates.")
        return self._tokenizer.encode(text, add_special_tokens=False)


class ApproximateTokenizer:
    """For a model whose own is not at hand: up to four letters, up to two digits, or another character.

    It counts more tokens than trained tokenizers mostly do, so a text that fits by it fits the model.
    """

    def count(self, text: str) -> int:
        """How many tokens the text may have."""
        return len(self.spans(text))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where each token stands, in code points; a Chinese, Japanese or Korean character is one."""
        if not is_unicode(text):
            raise ValueError("The text holds lone surrogates.")
        spans = []
        for piece in _PIECE.finditer(text):
            start, end = piece.span()
            if text[start:end].isascii() or not _WIDE.search(text, start, end):
                spans.append((start, end))
            else:
                spans += [(at, at + 1) for at in range(start, end)]
        return spans
