"""The port: what the platform asks of a model that turns text into vectors.

Adapters: `embedding.minilm` (bundled, in the process), `embedding.remote` (models of servers), `PrefixedEmbedder`
in `embedding.models`, and `causeway_testing.embedding` (for tests). All pass the contract tests in test_port.py.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from embedding.errors import UnembeddableText


class Tokenizer(Protocol):
    """Splits text as a model does. Pure, callable from any thread.

    Special tokens that a model adds ([CLS], [SEP]) are neither counted nor located, and nothing is truncated. A
    text that spells a special token is data: its characters are tokenized like any others.

    Raises:
        ValueError: The text holds lone surrogates, so it is no Unicode text.
    """

    def count(self, text: str) -> int:
        """How many tokens the text has; equal to ``len(self.spans(text))``."""
        ...

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where each token stands: ``(start, end)`` in code points, end exclusive.

        No span is empty; starts never decrease, and neither do ends. Neighbours may share a code point (a model may
        split one Hangul syllable into three tokens), so a text can be cut between two tokens only where the first
        ends at or before the second's start.
        """
        ...


class Embedder(Protocol):
    """Turns texts into vectors of one length.

    An embedder belongs to the event loop that it is first used in.
    """

    @property
    def model(self) -> str:
        """The model's name. An index records it: vectors of two models are never compared."""
        ...

    @property
    def dimension(self) -> int:
        """Length of each vector."""
        ...

    @property
    def max_tokens(self) -> int:
        """How many tokens of a text, counted as `tokenizer` counts, reach its vector; the rest is cut off."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's own tokenizer, by which a chunker fills `max_tokens`."""
        ...

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embeds texts, each independently of the others in the call.

        The event loop is never blocked, few texts of a call are in flight at a time, and calls take turns: a short
        call does not wait for a long one to end. Cancelling the call stops what has not begun.

        Args:
            texts: Any number of texts, none of them blank.

        Returns:
            Shape ``(len(texts), dimension)``, in the texts' order; each row has Euclidean length 1, so the dot
            product of two rows is their cosine.

        Raises:
            UnembeddableText: A text is blank or no Unicode text; nothing was embedded.
            Unavailable: The embedder is closed, or a remote model cannot be reached.
        """
        ...

    async def aclose(self) -> None:
        """Ends the embedder once what is in flight has ended; calls that still have texts left get Unavailable.

        Closing twice changes nothing.
        """
        ...


def check_texts(texts: Sequence[str]) -> None:
    """What every adapter asks of texts before it embeds the first.

    Blank texts are refused because no model gives them a meaning: they would come near to anything.

    Raises:
        UnembeddableText: For the first text that is blank or holds lone surrogates.
    """
    for index, text in enumerate(texts):
        if not text or text.isspace():
            raise UnembeddableText(index, "is blank")
        if not is_unicode(text):
            raise UnembeddableText(index, "is not valid Unicode")


def is_unicode(text: str) -> bool:
    """Whether the text is free of lone surrogates, which no encoding and no tokenizer accepts."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
