"""The optional multilingual-e5-small on the CPU, offline: 384 dimensions, the first 510 tokens of a text.

The first text loads the graph and the tokenizer. A service without an index for this model therefore needs no
memory for the model. The word vectors are mapped from their file. Only the used vectors are in memory, and all
processes share them.
"""

from pathlib import Path
from typing import Self

import onnxruntime  # type: ignore[import-untyped]  # has no types
from servicekit.errors import Unavailable

from embedding.cache import E5, GRAPH, PIECES
from embedding.lazy import Lazy
from embedding.local import LocalEmbedder, built_directory, open_session, this_cpu_has_vnni, unreadable_message
from embedding.sentence_pieces import SentencePieceTokenizer

DIMENSION = 384
MAX_SEQUENCE = 512
"""The number of positions of the model, including ``<s>`` and ``</s>``."""


class E5Embedder(LocalEmbedder):
    """The model; see `embedding.port.Embedder`. Use `load` to create it."""

    @classmethod
    def load(cls, cache_dir: Path, workers: int = 2) -> Self:
        """Return the embedder for the output of ``python -m embedding.build --multilingual``.

        If the files cannot be read, `embed` raises Unavailable.

        Args:
            cache_dir: The directory of the cache.
            workers: The number of texts that are embedded concurrently.

        Raises:
            CacheMissing: The model has not been built.
        """
        directory = built_directory(E5, cache_dir)
        tokenizer = SentencePieceTokenizer(directory / PIECES)
        return cls(E5.name, DIMENSION, MAX_SEQUENCE, tokenizer, Lazy(lambda: _session(directory)), workers)


def _session(directory: Path) -> onnxruntime.InferenceSession:
    try:
        return open_session(directory / GRAPH, exact=not this_cpu_has_vnni())
    except Exception as error:  # the library has no exception class for a damaged file
        raise Unavailable(unreadable_message(directory)) from error
