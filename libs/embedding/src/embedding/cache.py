"""The cache of built ONNX graphs: one directory for each model, weights, precision and builder version.

``<cache>/all-minilm-l6-v2-53aa51172d14-int8-v1/{model.onnx,tokenizer.json}``. The multilingual model has
``words.bin``, too, and ``tokenizer.model`` instead of ``tokenizer.json``. One rename creates the complete
directory, which never changes afterwards. Any process can therefore read it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

MODEL: Final = "all-minilm-l6-v2"
"""The name of the bundled model in the records of indexes."""

MULTILINGUAL: Final = "multilingual-e5-small"
"""The name of the optional multilingual model in the records of indexes."""

GRAPH = "model.onnx"
WORDS = "words.bin"
"""The file of the word vectors, beside the graph."""
TOKENIZER = "tokenizer.json"
PIECES = "tokenizer.model"
"""The tokenizer in the format of sentencepiece."""

Precision = Literal["int8", "fp32"]


def default_cache_dir(environ: Mapping[str, str]) -> Path:
    """Return ``$XDG_CACHE_HOME/causeway``, or ``~/.cache/causeway`` (XDG Base Directory Specification 0.8).

    The specification requires that relative paths are ignored.
    """
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "causeway"


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A local model, whose graph is built on this machine.

    Attributes:
        name: The name in the records of indexes.
        weights_sha256: The hash of the file with the weights.
        tokenizer_sha256: The hash of the tokenizer.json.
        version: Increases when the builder writes a different graph from the same weights.
        option: The option of ``python -m embedding.build`` for the model.
        query_prefix: The prefix of queries in the model's training.
        passage_prefix: The prefix of passages in the model's training.
        prefix_tokens: The number of tokens of the longer prefix, which count against the model's limit.
        cosine_floor: The cosine that counts as similarity 0, near the typical cosine of unrelated texts.
    """

    name: str
    weights_sha256: str
    tokenizer_sha256: str
    version: int
    option: str = ""
    query_prefix: str = ""
    passage_prefix: str = ""
    prefix_tokens: int = 0
    cosine_floor: float = 0.0


MINILM = CachedModel(
    MODEL,
    # model.safetensors of sentence-transformers/all-MiniLM-L6-v2
    weights_sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    tokenizer_sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    version=1,
)

E5 = CachedModel(
    MULTILINGUAL,
    # intfloat/multilingual-e5-small, quantized to 4 bits in blocks
    weights_sha256="1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
    tokenizer_sha256="0b44a9d7b51c3c62626640cda0e2c2f70fdacdc25bbbd68038369d14ebdf4c39",
    version=1,
    option="--multilingual",
    query_prefix="query: ",
    passage_prefix="passage: ",
    prefix_tokens=3,
    # Mean over ten languages: a question has a cosine of 0.88 with its answer, and of 0.79 with other texts.
    cosine_floor=0.75,
)


def model_directory(cache_dir: Path, precision: Precision, model: CachedModel = MINILM) -> Path:
    """Return the directory for the graph of this precision; it may not exist."""
    return cache_dir / f"{model.name}-{model.weights_sha256[:12]}-{precision}-v{model.version}"
