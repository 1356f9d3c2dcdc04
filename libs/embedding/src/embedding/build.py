"""Builds the files of the local models: ``python -m embedding.build``.

The command checks the weights, writes the graph, quantizes it, and stores it with the tokenizer in the cache. If
the files exist, the command does nothing. Several processes may build concurrently: each one builds in its own
directory, and the result of the first one remains.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from embedding.cache import (
    E5,
    GRAPH,
    MINILM,
    PIECES,
    TOKENIZER,
    WORDS,
    CachedModel,
    Precision,
    default_cache_dir,
    model_directory,
)
from embedding.errors import SetupError
from embedding.weights import ModelFiles, find_e5_files, find_minilm_files

if TYPE_CHECKING:
    from embedding.graph import Weights

_EMPTY_TEXT = {MINILM: (101, 102), E5: (0, 2)}
"""The special tokens of an empty text."""


@dataclass(frozen=True, slots=True)
class BuildResult:
    """The directory of a graph, and whether this call created it."""

    directory: Path
    created: bool


def build(
    cache_dir: Path, precision: Precision = "int8", files: ModelFiles | None = None, model: CachedModel = MINILM
) -> BuildResult:
    """Build the graph of this precision and the tokenizer, if the cache does not have them.

    Args:
        cache_dir: The directory of the cache; created if it does not exist.
        precision: ``int8`` is for services; ``fp32`` is for tests that compare the vectors.
        files: The model's files; None: the files of the installed distributions.
        model: The model to build.

    Raises:
        WeightsMissing: The files are not installed.
        WeightsMismatch: The files are not the original ones.
        OSError: The cache cannot be written.
    """
    target = model_directory(cache_dir, precision, model)
    if target.is_dir():
        return BuildResult(target, created=False)
    files = files or (find_e5_files() if model is E5 else find_minilm_files())
    tokenizer, weights = files.read_tokenizer(), files.read_weights()
    cache_dir.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".building-", dir=cache_dir) as scratch:
        directory = Path(scratch) / target.name
        directory.mkdir()
        if model is E5:
            _write_e5(directory, tokenizer, weights, precision)
        else:
            _write_minilm(directory, tokenizer, weights, precision)
        return BuildResult(target, created=_publish(directory, target))


# These functions import slow libraries, which are not installed where only the cache is used.
def _write_minilm(directory: Path, tokenizer: bytes, content: bytes, precision: Precision) -> None:
    import safetensors.numpy

    (directory / TOKENIZER).write_bytes(tokenizer)
    _write_graph(directory / GRAPH, safetensors.numpy.load(content), precision, MINILM)


def _write_e5(directory: Path, tokenizer: bytes, content: bytes, precision: Precision) -> None:
    import onnx

    from embedding.e5_weights import read_e5
    from embedding.sentence_pieces import write_model

    write_model(tokenizer, directory / PIECES)
    path = directory / GRAPH
    _write_graph(path, read_e5(content), precision, E5)
    # Word vectors in a separate file are mapped into memory instead of being read.
    graph = onnx.load(path)
    onnx.save(graph, path, save_as_external_data=True, location=WORDS, size_threshold=_MAX_INLINE_BYTES)
    (directory / WORDS).chmod(path.stat().st_mode)  # by default, other users cannot read this file


_MAX_INLINE_BYTES = 4 * 1024**2


def _write_graph(path: Path, weights: "Weights", precision: Precision, model: CachedModel) -> None:
    import onnx

    from embedding.graph import write_graph
    from embedding.quantization import write_quantized

    if precision == "int8":
        write_quantized(weights, path, _EMPTY_TEXT[model])
    else:
        onnx.save(write_graph(weights), path)


def _publish(directory: Path, target: Path) -> bool:
    """Rename a complete directory to the target; return False if another process has created the target."""
    for file in directory.iterdir():
        _flush(file)  # the content must be on the disk before the rename
    try:
        directory.rename(target)
    except OSError:
        if target.is_dir():
            return False
        raise
    return True


def _flush(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code: 0 success, 1 the model cannot be built.

    Raises:
        SystemExit: The arguments are invalid (exit code 2), or request the help.
    """
    parser = argparse.ArgumentParser(
        prog="python -m embedding.build",
        description="Build the files of an embedding model in the cache. If the files exist, do nothing.",
        epilog=(
            "examples:\n  python -m embedding.build\n  python -m embedding.build --cache /var/cache/causeway --json"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=default_cache_dir(os.environ),
        metavar="DIR",
        help="directory of the cache (default: %(default)s)",
    )
    parser.add_argument("--multilingual", action="store_true", help=f"build {E5.name} instead of {MINILM.name}")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    options = parser.parse_args(arguments)

    start = time.perf_counter()
    try:
        built = build(options.cache, model=E5 if options.multilingual else MINILM)
    except (SetupError, OSError) as error:
        sys.stderr.write(f"embedding.build: {error}\n")
        return 1
    seconds = time.perf_counter() - start
    size = sum(file.stat().st_size for file in built.directory.iterdir())
    if options.json:
        facts = {"directory": str(built.directory), "created": built.created, "bytes": size, "seconds": seconds}
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        outcome = f"built in {seconds:.1f} s" if built.created else "exists already"
        sys.stdout.write(f"graph {outcome}: {built.directory} ({size / 1e6:.0f} MB)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
