"""An embedder for tests, without a model. Texts with common words have similar vectors.

It uses feature hashing of a bag of words (Weinberger et al. 2009, https://arxiv.org/abs/0902.2206), without signs,
so that a vector is never zero.
"""

import re
import string
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from embedding.port import check_texts, is_unicode
from servicekit.errors import Unavailable

_WORD = re.compile(r"\S+")


class WordTokenizer:
    """A tokenizer whose tokens are separated by white space."""

    def count(self, text: str) -> int:
        """Return the number of words."""
        return len(self.spans(text))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the position of each word in code points."""
        if not is_unicode(text):
            raise ValueError("The text contains lone surrogates.")
        return [match.span() for match in _WORD.finditer(text)]


class HashingEmbedder:
    """Counts the words of a text in hash buckets, one for each dimension of the vector.

    It ignores case, and punctuation around a word.

    Args:
        dimension: The length of each vector.
        max_tokens: The maximum number of words; further words are ignored.
    """

    def __init__(self, dimension: int = 256, max_tokens: int = 256) -> None:
        self.model = f"hashed-words-{dimension}"
        self.dimension = dimension
        self.max_tokens = max_tokens
        self.tokenizer = WordTokenizer()
        self._closed = False

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed texts. See `embedding.port.Embedder.embed`."""
        check_texts(texts)
        if self._closed:
            raise Unavailable("The embedding model is shut down.")
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            for word in text.split()[: self.max_tokens]:
                bare = word.strip(string.punctuation) or word
                vector[zlib.crc32(bare.casefold().encode()) % self.dimension] += 1
            vector /= np.linalg.norm(vector)
        return vectors

    async def aclose(self) -> None:
        """Refuse further calls."""
        self._closed = True
