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
    """Counts with a model's own tokenizer, without the interpreter's lock: 4 MB of English a second and core.

    Args:
        path: A ``tokenizer.json``.
        template: The model's chat template; None counts what OpenAI's adds.

    Raises:
        ValueError: The file cannot be read.
    """

    exact = True

    def __init__(self, path: Path, template: ChatTemplate | None = None) -> None:
        self._texts = _load(path)
        self._texts.encode_special_tokens = True  # in a text "<|endoftext|>" is its characters
        self._prompts = _load(path)
        self._template = template
        self.counting = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"

    def count(self, text: str) -> int:
        """Tokens; special tokens that stand in the text count as the text they are."""
        return _lengths(self._texts, [text])[0]

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Of each text, on all cores."""
        return _lengths(self._texts, texts)

    def count_messages(self, messages: Sequence[ChatMessage]) -> int:
        """Tokens of the prompt that the template makes; of texts and an estimate where it can make none."""
        if self._template is None:
            return conversation(self.count, messages)
        try:
            prompt = self._template.render(plain_messages(messages))
        except InvalidRequest:  # pictures, calls, roles that the template refuses: to count is not to judge
            return conversation(self.count, messages)
        return _lengths(self._prompts, [prompt])[0]


def _load(path: Path) -> "tokenizers.Tokenizer":
    # Imported here: only who needs it shall pay for it.
    import tokenizers

    try:
        loaded = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing more exact
        raise ValueError(f"{path} is no tokenizer that can be read: {error}") from error
    loaded.no_truncation()
    loaded.no_padding()
    return loaded


def _lengths(tokenizer: "tokenizers.Tokenizer", texts: Sequence[str]) -> list[int]:
    clean = [text if text.isascii() else text.encode("utf-8", "replace").decode() for text in texts]
    return [len(encoding) for encoding in tokenizer.encode_batch_fast(clean, add_special_tokens=False)]
