"""The bundled all-MiniLM-L6-v2 on the CPU, offline: 384 dimensions, the first 254 tokens of a text.

One text at a time. Padding texts into batches is slower on a CPU, and with int8 it would let a text's neighbours
in the batch change its vector; so the same text always gets the same vector. Parallelism comes from several threads
that run the one session: it is made to be shared, and keeps one copy of the weights.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
import onnxruntime  # type: ignore[import-untyped]  # has no types

from embedding.cache import GRAPH, MODEL, TOKENIZER, Precision, entry
from embedding.errors import CacheMissing, CacheUnreadable
from embedding.port import check_texts
from embedding.tokenizer import FileTokenizer
from embedding.turns import TurnTaker

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


class MiniLmEmbedder:
    """The bundled model; see `embedding.port.Embedder`. Made by `load`."""

    model = MODEL
    dimension = DIMENSION
    max_tokens = MAX_SEQUENCE - 2

    def __init__(self, session: onnxruntime.InferenceSession, tokenizer: WordPieceTokenizer, workers: int) -> None:
        self.tokenizer = tokenizer
        self._session = session
        self._turns = TurnTaker(workers, name="minilm")

    @classmethod
    def load(cls, cache_dir: Path, workers: int = 2, precision: Precision = "int8") -> Self:
        """Loads what ``python -m embedding.build`` put into the cache; nothing is written.

        Args:
            cache_dir: The cache's directory.
            workers: Texts that are embedded at the same time; more than the machine has cores gains nothing.
            precision: ``fp32`` is for comparison.

        Raises:
            CacheMissing: Nothing has been built there.
            CacheUnreadable: It cannot be loaded.
        """
        directory = entry(cache_dir, precision)
        if not directory.is_dir():
            raise CacheMissing(
                f"There is no embedding model in {directory}. Build it with: python -m embedding.build"
                f" --cache {cache_dir}{' --fp32' if precision == 'fp32' else ''}"
            )
        try:
            tokenizer = WordPieceTokenizer(directory / TOKENIZER)
            session = open_session(directory / GRAPH, exact=not _this_cpu_has_vnni())
        except Exception as error:  # neither library has an exception class of its own for a damaged file
            raise CacheUnreadable(
                f"The embedding model in {directory} cannot be loaded. Delete that directory and build it again."
            ) from error
        return cls(session, tokenizer, workers)

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embeds texts, each by itself; see `embedding.port.Embedder.embed`."""
        check_texts(texts)
        vectors = await self._turns.map(self._vector, texts)
        return np.stack(vectors) if vectors else np.empty((0, DIMENSION), np.float32)

    async def aclose(self) -> None:
        """Waits for the texts that are being embedded; see `embedding.port.Embedder.aclose`."""
        await self._turns.aclose()

    def _vector(self, text: str) -> npt.NDArray[np.float32]:
        """Tokenizes and embeds, both without the interpreter's lock."""
        tokens = self.tokenizer.sequence(text, MAX_SEQUENCE)
        vector: npt.NDArray[np.float32] = self._session.run(None, {"input_ids": tokens[None]})[0][0]
        return vector


def has_vnni(cpuinfo: str) -> bool:
    """Return whether the CPU multiplies 8-bit integers into 32 bits (VNNI).

    Args:
        cpuinfo: The text of Linux' ``/proc/cpuinfo``.
    """
    flags = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "").split()
    return not {"avx512_vnni", "avx_vnni"}.isdisjoint(flags)


def _this_cpu_has_vnni() -> bool:
    try:
        return has_vnni(Path("/proc/cpuinfo").read_text())
    except OSError:
        return False  # another system: exact multiplication gives the same vectors, only later


def open_session(path: Path, *, exact: bool) -> onnxruntime.InferenceSession:
    """Return a session of a graph.

    Args:
        path: The graph.
        exact: 8-bit products are added up in 32 bits. CPUs without VNNI add them in 16 bits, which saturate, and so
            get other vectors unless they are told. CPUs with VNNI always add exactly; told so, they take kernels
            that need twice the time for the same vectors.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    if exact:
        options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(
        str(path),
        options,
        providers=["CPUExecutionProvider"],
        # The fused operator is 5 to 10 % slower than the two that it replaces.
        disabled_optimizers=["SkipLayerNormFusion"],
    )
