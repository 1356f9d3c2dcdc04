"""The configuration file ``rerankers.yaml`` (docs/retrieval.md)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from servicekit.yaml_file import Document
from servicekit.yaml_values import ExistingFile, Name, Seconds, Secret, Target, Url


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    model: str = ""
    api_key: Secret | None = None
    candidates: int = Field(50, ge=1, le=1000)
    timeout: Seconds = 2.0
    concurrency: int = Field(8, ge=1, le=256)
    rest: Seconds = 10.0
    required: bool = False

    @property
    def public_model(self) -> str:
        """The name of the model on the server."""
        return self.model or self.name


class HttpEntry(_Entry):
    """A server with a ``/rerank`` path."""

    kind: Literal["http"]
    url: Url
    api: Literal["cohere", "tei"] = "cohere"


class TritonEntry(_Entry):
    """A cross-encoder on a Triton Inference Server."""

    kind: Literal["triton"]
    url: Target
    tokenizer: ExistingFile
    max_tokens: int = Field(512, ge=16, le=1_000_000)
    batch: int = Field(32, ge=1, le=1024)
    tls: bool = False
    ca_file: ExistingFile | None = None


Entry = Annotated[HttpEntry | TritonEntry, Field(discriminator="kind")]


class RerankersFile(BaseModel):
    """The whole file. Without ``default``, the first reranker is the default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    default: str = ""
    rerankers: tuple[Entry, ...] = Field(min_length=1)


def read(path: Path, environ: Mapping[str, str]) -> tuple[Entry, ...]:
    """Return the rerankers of a file, the default first.

    Args:
        path: The file. Paths in it are relative to its directory.
        environ: The variables that the file may reference.

    Raises:
        BadFile: The file is invalid. The message has file, line and key.
        OSError: The file cannot be read.
    """
    document = Document(path.read_bytes(), str(path))
    file = document.validated(RerankersFile, {"environ": environ, "folder": path.parent})
    names = [entry.name for entry in file.rerankers]
    document.check_names("rerankers", names, file.default, what="reranker")
    return tuple(sorted(file.rerankers, key=lambda entry: entry.name != file.default))
