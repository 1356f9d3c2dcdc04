"""Where built graphs are kept: one directory per model, weights, precision and builder version.

``<cache>/all-minilm-l6-v2-53aa51172d14-int8-v1/{model.onnx,tokenizer.json}``. A directory comes into being
complete, by one rename, and never changes afterwards; so whoever finds it can read it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

MODEL: Final = "all-minilm-l6-v2"
"""Name of the bundled model, as an index records it."""

MULTILINGUAL: Final = "multilingual-e5-small"
"""Likewise of the optional model for many languages."""

GRAPH = "model.onnx"
WORDS = "words.bin"
"""Word vectors beside a graph, where they are not in it."""
TOKENIZER = "tokenizer.json"
PIECES = "tokenizer.model"
"""The tokenizer in sentencepiece's own format."""

Precision = Literal["int8", "fp32"]


def default_cache_dir(environ: Mapping[str, str]) -> Path:
    """``$XDG_CACHE_HOME/causeway``, else ``~/.cache/causeway`` (XDG Base Directory Specification 0.8).

    The specification has relative paths ignored.
    """
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "causeway"


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model whose graph is built on this machine.

    Attributes:
        name: As an index records it.
        weights_sha256: Of the file with its weights.
        tokenizer_sha256: Of its tokenizer.json.
        version: Goes up whenever the builder writes another graph from the same weights.
        option: What ``python -m embedding.build`` needs to be told for it.
        query_prefix: What it was trained to have before a query.
        passage_prefix: Likewise before a passage.
        prefix_tokens: What the longer of them takes of the tokens that the model reads.
        cosine_floor: Cosine that texts have which have nothing to do with each other.
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
    # intfloat/multilingual-e5-small in blocks of 4 bits
    weights_sha256="1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
    tokenizer_sha256="0b44a9d7b51c3c62626640cda0e2c2f70fdacdc25bbbd68038369d14ebdf4c39",
    version=1,
    option="--multilingual",
    query_prefix="query: ",
    passage_prefix="passage: ",
    prefix_tokens=3,
    # A question has cosines of 0.88 with its answer, of 0.79 with other texts, in the mean of ten languages.
    cosine_floor=0.75,
)


def entry(cache_dir: Path, precision: Precision, model: CachedModel = MINILM) -> Path:
    """The directory that holds, or will hold, the graph of this precision."""
    return cache_dir / f"{model.name}-{model.weights_sha256[:12]}-{precision}-v{model.version}"
