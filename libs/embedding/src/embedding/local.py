"""Models that run in the process, on the CPU, offline.

Each run of a model's ONNX graph embeds one text. Batches with padding are slower on a CPU, and with int8 the other
texts of a batch would change a text's vector. Without batches, the same text always gets the same vector. Several
threads share one session, which has one copy of the weights.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime  # type: ignore[import-untyped]  # has no types

from embedding.cache import CachedModel, Precision, model_directory
from embedding.errors import CacheMissing
from embedding.fair_limiter import FairThreadPool
from embedding.port import Tokenizer, check_texts


class SequenceTokenizer(Tokenizer, Protocol):
    """A tokenizer with the input format of its model."""

    def sequence(self, text: str, length: int) -> npt.NDArray[np.int64]:
        """Return the model's input: at most ``length`` tokens, including the special tokens at both ends."""
        ...


class LocalEmbedder:
    """A local model; see `embedding.port.Embedder`.

    Args:
        model: The name of the model.
        dimension: The length of the vectors.
        max_sequence: The maximum number of tokens of the input, including the two special tokens.
        tokenizer: The tokenizer of the model.
        session: Returns the session of the ONNX graph; the embedding threads call it.
        workers: The number of texts that are embedded concurrently; it should not exceed the number of cores.
    """

    def __init__(
        self,
        model: str,
        dimension: int,
        max_sequence: int,
        tokenizer: SequenceTokenizer,
        session: Callable[[], onnxruntime.InferenceSession],
        workers: int,
    ) -> None:
        self.model = model
        self.dimension = dimension
        self.max_tokens = max_sequence - 2
        self.tokenizer = tokenizer
        self._session = session
        self._limiter = FairThreadPool(workers, name="embedding")

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed texts one by one; see `embedding.port.Embedder.embed`."""
        check_texts(texts)
        vectors = await self._limiter.map(self._vector, texts)
        return np.stack(vectors) if vectors else np.empty((0, self.dimension), np.float32)

    async def aclose(self) -> None:
        """Wait for running texts; see `embedding.port.Embedder.aclose`."""
        await self._limiter.aclose()

    def _vector(self, text: str) -> npt.NDArray[np.float32]:
        """Tokenize and embed a text; both libraries release the GIL."""
        tokens = self.tokenizer.sequence(text, self.max_tokens + 2)
        vector: npt.NDArray[np.float32] = self._session().run(None, {"input_ids": tokens[None]})[0][0]
        return vector


def built_directory(model: CachedModel, cache_dir: Path, precision: Precision = "int8") -> Path:
    """Return the directory of a model's files.

    Raises:
        CacheMissing: The model has not been built.
    """
    directory = model_directory(cache_dir, precision, model)
    if not directory.is_dir():
        command = f"python -m embedding.build --cache {cache_dir} {model.option}".rstrip()
        raise CacheMissing(f"The embedding model in {directory} does not exist. Build it with: {command}")
    return directory


def unreadable_message(directory: Path) -> str:
    """Return the message for files that cannot be loaded."""
    return f"The embedding model in {directory} cannot be loaded. Delete that directory and build it again."


def has_vnni(cpuinfo: str) -> bool:
    """Return whether the CPU can sum products of 8-bit integers in 32 bits with one instruction (VNNI).

    Args:
        cpuinfo: The text of Linux's ``/proc/cpuinfo``.
    """
    flags = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "").split()
    return not {"avx512_vnni", "avx_vnni"}.isdisjoint(flags)


def this_cpu_has_vnni() -> bool:
    """Return whether this machine's CPU has VNNI."""
    try:
        return has_vnni(Path("/proc/cpuinfo").read_text())
    except OSError:
        return False  # other systems use exact multiplication, which is slower and gives the same vectors


def open_session(path: Path, *, exact: bool) -> onnxruntime.InferenceSession:
    """Return an ONNX Runtime session for a graph.

    Args:
        path: The file of the graph.
        exact: Whether to sum products of 8-bit integers in 32 bits. Without this option, CPUs without VNNI use 16
            bits, which saturate, and compute different vectors. CPUs with VNNI always sum exactly; with this
            option, they need twice the time for the same vectors.
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
        # The fused operator is 5 to 10 % slower than the two operators that it replaces.
        disabled_optimizers=["SkipLayerNormFusion"],
    )
