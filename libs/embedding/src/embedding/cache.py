"""Where built graphs are kept: one directory per model, weights, precision and builder version.

``<cache>/all-minilm-l6-v2-53aa51172d14-int8-v1/{model.onnx,tokenizer.json}``. A directory comes into being
complete, by one rename, and never changes afterwards; so whoever finds it can read it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

MODEL: Final = "all-minilm-l6-v2"
"""Name of the bundled model, as an index records it."""

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Hash of the original model.safetensors of sentence-transformers/all-MiniLM-L6-v2."""

TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
"""Hash of its tokenizer.json."""

BUILDER_VERSION = 1
"""Goes up whenever `embedding.graph` writes another graph from the same weights."""

GRAPH = "model.onnx"
TOKENIZER = "tokenizer.json"

Precision = Literal["int8", "fp32"]


def default_cache_dir(environ: Mapping[str, str]) -> Path:
    """``$XDG_CACHE_HOME/causeway``, else ``~/.cache/causeway`` (XDG Base Directory Specification 0.8).

    The specification has relative paths ignored.
    """
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "causeway"


def entry(cache_dir: Path, precision: Precision) -> Path:
    """The directory that holds, or will hold, the graph of this precision."""
    return cache_dir / f"{MODEL}-{WEIGHTS_SHA256[:12]}-{precision}-v{BUILDER_VERSION}"
