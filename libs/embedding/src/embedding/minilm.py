"""The bundled all-MiniLM-L6-v2 on the CPU, offline: 384 dimensions, the first 254 tokens of a text."""

from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from embedding.cache import GRAPH, MINILM, TOKENIZER, Precision
from embedding.errors import CacheUnreadable
from embedding.local import LocalEmbedder, built_directory, open_session, this_cpu_has_vnni, unreadable_message
from embedding.tokenizer import FileTokenizer

DIMENSION = 384
MAX_SEQUENCE = 256
"""The max_seq_length of the model's training and evaluation, including [CLS] and [SEP]."""


class WordPieceTokenizer(FileTokenizer):
    """The tokenizer of the model (WordPiece, lower case, without accents); see `embedding.port.Tokenizer`.

    Args:
        path: The tokenizer.json.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._first = self._tokenizer.token_to_id("[CLS]")
        self._last = self._tokenizer.token_to_id("[SEP]")

    def sequence(self, text: str, length: int) -> npt.NDArray[np.int64]:
        """Return the model's input: the text's tokens between [CLS] and [SEP], cut to ``length`` tokens."""
        return np.array([self._first, *self._encode(text).ids[: length - 2], self._last], np.int64)


class MiniLmEmbedder(LocalEmbedder):
    """The bundled model; see `embedding.port.Embedder`. Use `load` to create it."""

    @classmethod
    def load(cls, cache_dir: Path, workers: int = 2, precision: Precision = "int8") -> Self:
        """Return the embedder for the output of ``python -m embedding.build``.

        Args:
            cache_dir: The directory of the cache.
            workers: The number of texts that are embedded concurrently.
            precision: ``fp32`` is for tests that compare the vectors.

        Raises:
            CacheMissing: The model has not been built.
            CacheUnreadable: The files cannot be loaded.
        """
        directory = built_directory(MINILM, cache_dir, precision)
        try:
            tokenizer = WordPieceTokenizer(directory / TOKENIZER)
            session = open_session(directory / GRAPH, exact=not this_cpu_has_vnni())
        except Exception as error:  # neither library has an exception class for a damaged file
            raise CacheUnreadable(unreadable_message(directory)) from error
        return cls(MINILM.name, DIMENSION, MAX_SEQUENCE, tokenizer, lambda: session, workers)
