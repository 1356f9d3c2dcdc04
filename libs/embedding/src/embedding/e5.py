"""The optional multilingual-e5-small on the CPU, offline: 384 dimensions, the first 510 tokens of a text.

Graph and tokenizer are loaded with the first text, so that a service that has the model and no index of it pays
nothing. The word vectors are mapped from their file: only those that texts have had are in memory, and processes
share them.
"""

from pathlib import Path
from typing import Self

import onnxruntime  # type: ignore[import-untyped]  # has no types
from servicekit.errors import Unavailable

from embedding.cache import E5, GRAPH, PIECES, Precision
from embedding.lazy import Lazy
from embedding.local import LocalEmbedder, built, open_session, this_cpu_has_vnni, unreadable
from embedding.sentence_pieces import SentencePieceTokenizer

DIMENSION = 384
MAX_SEQUENCE = 512
"""The model's positions. It counts ``<s>`` and ``</s>``."""


class E5Embedder(LocalEmbedder):
    """The model; see `embedding.port.Embedder`. Made by `load`."""

    @classmethod
    def load(cls, cache_dir: Path, workers: int = 2, precision: Precision = "int8") -> Self:
        """Makes the embedder of what ``python -m embedding.build --multilingual`` put into the cache.

        Files that cannot be read are Unavailable with the first text.

        Args:
            cache_dir: The cache's directory.
            workers: Texts that are embedded at the same time.
            precision: ``fp32`` is for comparison.

        Raises:
            CacheMissing: Nothing has been built there.
        """
        directory = built(E5, cache_dir, precision)
        tokenizer = SentencePieceTokenizer(directory / PIECES)
        return cls(E5.name, DIMENSION, MAX_SEQUENCE, tokenizer, Lazy(lambda: _session(directory)), workers)


def _session(directory: Path) -> onnxruntime.InferenceSession:
    try:
        return open_session(directory / GRAPH, exact=not this_cpu_has_vnni())
    except Exception as error:  # the library has no exception class of its own for a damaged file
        raise Unavailable(unreadable(directory)) from error
