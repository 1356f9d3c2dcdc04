"""The bundled all-MiniLM-L6-v2 on the CPU, offline: 384 dimensions, the first 254 tokens of a text."""

from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt

from embedding.cache import GRAPH, MINILM, TOKENIZER, Precision
from embedding.errors import CacheUnreadable
from embedding.local import LocalEmbedder, built, open_session, this_cpu_has_vnni, unreadable
from embedding.tokenizer import FileTokenizer

DIMENSION = 384
MAX_SEQUENCE = 256
"""The model's max_seq_length: what it was trained and measured with. It counts [CLS] and [SEP]."""


class WordPieceTokenizer(FileTokenizer):
    """The model's own tokenizer (WordPiece, lower case, accents stripped); see `embedding.port.Tokenizer`.

    Args:
        path: Its tokenizer.json.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._first = self._tokenizer.token_to_id("[CLS]")
        self._last = self._tokenizer.token_to_id("[SEP]")

    def sequence(self, text: str, length: int) -> npt.NDArray[np.int64]:
        """What the model reads: the text's tokens between [CLS] and [SEP], cut to ``length`` tokens in all."""
        return np.array([self._first, *self._encode(text).ids[: length - 2], self._last], np.int64)


class MiniLmEmbedder(LocalEmbedder):
    """The bundled model; see `embedding.port.Embedder`. Made by `load`."""

    @classmethod
    def load(cls, cache_dir: Path, workers: int = 2, precision: Precision = "int8") -> Self:
        """Loads what ``python -m embedding.build`` put into the cache; nothing is written.

        Args:
            cache_dir: The cache's directory.
            workers: Texts that are embedded at the same time.
            precision: ``fp32`` is for comparison.

        Raises:
            CacheMissing: Nothing has been built there.
            CacheUnreadable: It cannot be loaded.
        """
        directory = built(MINILM, cache_dir, precision)
        try:
            tokenizer = WordPieceTokenizer(directory / TOKENIZER)
            session = open_session(directory / GRAPH, exact=not this_cpu_has_vnni())
        except Exception as error:  # neither library has an exception class of its own for a damaged file
            raise CacheUnreadable(unreadable(directory)) from error
        return cls(MINILM.name, DIMENSION, MAX_SEQUENCE, tokenizer, lambda: session, workers)
