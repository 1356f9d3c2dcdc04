"""Tokenizers in Hugging Face's format, ``tokenizer.json``: https://huggingface.co/docs/tokenizers."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from servicekit.errors import InvalidRequest

from generator.domain import ChatMessage
from generator.tokenizers.estimate import conversation
from generator.tokenizers.templates import ChatTemplate, plain_messages

if TYPE_CHECKING:
    import tokenizers


class HuggingFaceTokens:
    """Counts with a model's own tokenizer, without holding the GIL: 4 MB of English per second and core.

    Args:
        path: A ``tokenizer.json``.
        template: The model's chat template; None: OpenAI's token counts.

    Raises:
        ValueError: The file cannot be read.
    """

    exact = True

    def __init__(self, path: Path, template: ChatTemplate | None = None) -> None:
        self._texts = _load(path)
        self._texts.encode_special_tokens = True  # "<|endoftext|>" in a text counts as its characters
        self._prompts = _load(path)
        self._template = template
        self.counting = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"

    def count(self, text: str) -> int:
        """Return the tokens; special tokens in the text count as plain text."""
        return _lengths(self._texts, [text])[0]

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Return the count of each text, on all cores."""
        return _lengths(self._texts, texts)

    def count_messages(self, messages: Sequence[ChatMessage]) -> int:
        """Return the tokens of the template's prompt; if the template fails, of the texts and an estimate."""
        if self._template is None:
            return conversation(self.count, messages)
        try:
            prompt = self._template.render(plain_messages(messages))
        except InvalidRequest:  # the template refuses pictures, calls or roles; counting does not
            return conversation(self.count, messages)
        return _lengths(self._prompts, [prompt])[0]


def _load(path: Path) -> "tokenizers.Tokenizer":
    # Imported here, because few deployments need it.
    import tokenizers

    try:
        loaded = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower type
        raise ValueError(f"{path} is no tokenizer that can be read: {error}") from error
    loaded.no_truncation()
    loaded.no_padding()
    return loaded


def _lengths(tokenizer: "tokenizers.Tokenizer", texts: Sequence[str]) -> list[int]:
    clean = [text if text.isascii() else text.encode("utf-8", "replace").decode() for text in texts]
    return [len(encoding) for encoding in tokenizer.encode_batch_fast(clean, add_special_tokens=False)]
