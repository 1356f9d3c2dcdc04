"""Models that were trained with a word before each text (E5: ``query: `` and ``passage: ``)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from embedding.errors import SetupError
from embedding.port import Embedder, check_texts

_LEAST_TOKENS = 16


class PrefixedEmbedder:
    """Puts a prefix before each text; see `embedding.port.Embedder`.

    Args:
        embedder: Embeds.
        prefix: Takes its tokens of what the model reads.

    Raises:
        SetupError: It leaves too little for the text.
    """

    def __init__(self, embedder: Embedder, prefix: str) -> None:
        self.model = embedder.model
        self.dimension = embedder.dimension
        self.max_tokens = embedder.max_tokens - embedder.tokenizer.count(prefix)
        self.tokenizer = embedder.tokenizer
        if self.max_tokens < _LEAST_TOKENS:
            raise SetupError(f"The prefix {prefix!r} leaves {self.max_tokens} tokens for a text.")
        self._embedder = embedder
        self._prefix = prefix

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embeds prefix and text as one; see `embedding.port.Embedder.embed`."""
        check_texts(texts)  # behind a prefix a blank text would not be seen
        return await self._embedder.embed([self._prefix + text for text in texts])

    async def aclose(self) -> None:
        """Closes the embedder; see `embedding.port.Embedder.aclose`."""
        await self._embedder.aclose()
