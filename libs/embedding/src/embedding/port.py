"""The port of embedding models.

Adapters: `embedding.minilm` (bundled, in the process), `embedding.remote` (models of servers), `PrefixedEmbedder`
in `embedding.models`, and `causeway_testing.embedding` (for tests). All pass the contract tests in test_port.py.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from embedding.errors import UnembeddableText


class Tokenizer(Protocol):
    """Splits text like a model. Pure, callable from any thread.

    Special tokens that a model adds ([CLS], [SEP]) are neither counted nor located, and nothing is truncated. A
    text that spells a special token is data: its characters are tokenized like any others.

    Raises:
        ValueError: The text contains lone surrogates, so it is not Unicode.
    """

    def count(self, text: str) -> int:
        """Return the number of tokens of the text, equal to ``len(self.spans(text))``."""
        ...

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the span of each token: ``(start, end)`` in code points, end exclusive.

        No span is empty; neither starts nor ends decrease. Neighbours may share a code point (a model may split a
        Hangul syllable into three tokens). So a text can be cut between two tokens only if the first one ends at or
        before the start of the second one.
        """
        ...


class Embedder(Protocol):
    """Turns texts into vectors of one length.

    An embedder belongs to the event loop that first uses it.
    """

    @property
    def model(self) -> str:
        """The model's name. Indexes record it, because vectors of different models cannot be compared."""
        ...

    @property
    def dimension(self) -> int:
        """Length of each vector."""
        ...

    @property
    def max_tokens(self) -> int:
        """The number of a text's tokens, counted by `tokenizer`, that the model reads; the rest is cut off."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, with which a chunker fills `max_tokens`."""
        ...

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed texts, each independently of the others in the call.

        The event loop is never blocked, few texts of a call are in flight at a time, and calls take turns: a short
        call does not wait for a long one to end. Cancelling the call stops texts that have not started.

        Args:
            texts: Any number of texts, none of them blank.

        Returns:
            Shape ``(len(texts), dimension)``, in the order of the texts. Each row has Euclidean length 1, so the
            dot product of two rows is their cosine.

        Raises:
            UnembeddableText: A text is blank or not Unicode; nothing was embedded.
            Unavailable: The embedder is closed, or a remote model cannot be reached.
        """
        ...

    async def aclose(self) -> None:
        """Close the embedder once running texts have ended; calls with remaining texts raise Unavailable.

        Closing twice has no effect.
        """
        ...


def check_texts(texts: Sequence[str]) -> None:
    """Check texts before the first one is embedded.

    Blank texts are refused because models give them no meaning: they would be similar to any text.

    Raises:
        UnembeddableText: For the first text that is blank or contains lone surrogates.
    """
    for index, text in enumerate(texts):
        if not text or text.isspace():
            raise UnembeddableText(index, "is blank")
        if not is_unicode(text):
            raise UnembeddableText(index, "is not valid Unicode")


def is_unicode(text: str) -> bool:
    """Return whether the text has no lone surrogates, which no encoding and no tokenizer accepts."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
