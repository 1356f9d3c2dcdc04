"""The port of embedding models.

Adapters: `embedding.minilm` and `embedding.e5` (in the process), `embedding.remote` (on servers),
`PrefixedEmbedder` in `embedding.models`, and `causeway_testing.embedding` (for tests). All adapters pass the
contract tests in test_port.py.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from embedding.errors import UnembeddableText


class Tokenizer(Protocol):
    """Splits text into the tokens of a model. Any thread may call it.

    The result has no special tokens that a model adds ([CLS], [SEP]), and is not truncated. The name of a special
    token in a text is plain text.

    Raises:
        ValueError: The text contains lone surrogates, which are not valid Unicode.
    """

    def count(self, text: str) -> int:
        """Return the number of tokens of the text, equal to ``len(self.spans(text))``."""
        ...

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the span of each token: ``(start, end)`` in code points, end exclusive.

        No span is empty. Starts and ends never decrease. Neighbouring spans may share a code point, because a model
        may split a Hangul syllable into three tokens. A text can be cut between two tokens if the first token ends
        at or before the start of the second token.
        """
        ...


class Embedder(Protocol):
    """Converts texts to vectors of one length. All calls must run in the event loop of the first call."""

    @property
    def model(self) -> str:
        """The model's name. Indexes record it, because vectors of different models cannot be compared."""
        ...

    @property
    def dimension(self) -> int:
        """The length of each vector."""
        ...

    @property
    def max_tokens(self) -> int:
        """The maximum number of tokens of a text, counted by `tokenizer`; longer texts are truncated."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, with which a chunker measures texts."""
        ...

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed texts, each independently of the other texts of the call.

        The call does not block the event loop. Concurrent calls share the model fairly: a short call does not wait
        for the end of a long call. Cancelling the call stops texts that have not started.

        Args:
            texts: Any number of texts that are not blank.

        Returns:
            Shape ``(len(texts), dimension)``, in the order of the texts. Each row has Euclidean length 1, so the
            dot product of two rows is their cosine.

        Raises:
            UnembeddableText: A text is blank or not Unicode; no text was embedded.
            Unavailable: The embedder is closed, or the server of a remote model cannot be reached or fails.
            InvalidRequest, RateLimited, DeadlineExceeded: The server of a remote model refused the texts, is busy,
                or did not answer in time.
        """
        ...

    async def aclose(self) -> None:
        """Wait for running texts and close the embedder; calls with remaining texts raise Unavailable.

        Closing twice has no effect.
        """
        ...


def check_texts(texts: Sequence[str]) -> None:
    """Check texts before the first one is embedded.

    Blank texts are refused, because their vectors are similar to the vectors of all texts.

    Raises:
        UnembeddableText: A text is blank or contains lone surrogates; the error names the first such text.
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
