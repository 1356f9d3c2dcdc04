"""Tokenizers in Hugging Face's format, ``tokenizer.json``: https://huggingface.co/docs/tokenizers."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from servicekit.errors import InvalidRequest

from generator.domain import ChatMessage
from generator.tokenizers.estimate import count_conversation
from generator.tokenizers.templates import ChatTemplate, text_messages

if TYPE_CHECKING:
    import tokenizers


class HuggingFaceTokens:
    """Counts tokens with a model's own tokenizer: 4 MB of English per second and core. Counting releases the GIL.

    Args:
        path: A ``tokenizer.json``.
        template: The model's chat template; None: conversations are counted with OpenAI's template.

    Raises:
        ValueError: The file cannot be read.
    """

    exact = True

    def __init__(self, path: Path, template: ChatTemplate | None = None) -> None:
        self._text_tokenizer = _load(path)
        self._text_tokenizer.encode_special_tokens = True  # count "<|endoftext|>" in a text as plain text
        self._prompt_tokenizer = _load(path)
        self._template = template
        self.counting = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"

    def count(self, text: str) -> int:
        """Return the number of tokens; special tokens in the text count as plain text."""
        return _lengths(self._text_tokenizer, [text])[0]

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Return the count of each text, on all cores."""
        return _lengths(self._text_tokenizer, texts)

    def count_messages(self, messages: Sequence[ChatMessage]) -> int:
        """Return the number of tokens of the rendered prompt; if the template fails, use OpenAI's template."""
        if self._template is None:
            return count_conversation(self.count, messages)
        try:
            prompt = self._template.render(text_messages(messages))
        except InvalidRequest:  # the template refuses pictures, tool calls or roles; a count must not fail
            return count_conversation(self.count, messages)
        return _lengths(self._prompt_tokenizer, [prompt])[0]


def _load(path: Path) -> "tokenizers.Tokenizer":
    # This import is here, because few installations need the package.
    import tokenizers

    try:
        loaded = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower type
        raise ValueError(f"The tokenizer {path} cannot be read: {error}") from error
    loaded.no_truncation()
    loaded.no_padding()
    return loaded


def _lengths(tokenizer: "tokenizers.Tokenizer", texts: Sequence[str]) -> list[int]:
    # The library refuses lone surrogates; each becomes "?".
    clean = [text if text.isascii() else text.encode("utf-8", "replace").decode() for text in texts]
    return [len(encoding) for encoding in tokenizer.encode_batch_fast(clean, add_special_tokens=False)]
