"""Reads ``embeddings.yaml``, the configuration of embedding models (docs/embeddings.md)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field
from servicekit.yaml_file import Document
from servicekit.yaml_values import ExistingFile, Name, Seconds, Secret, Target, Url

from embedding.cache import MODEL, MULTILINGUAL
from embedding.config import EmbeddingConfig

_Prefix = Annotated[str, Field(max_length=1000)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class MiniLmEntry(_Entry):
    """The bundled model. Its name is fixed, so that its indexes are not used with another model."""

    kind: Literal["minilm"]
    name: Literal["all-minilm-l6-v2"] = MODEL


class E5Entry(_Entry):
    """The optional multilingual model, which also has a fixed name."""

    kind: Literal["e5"]
    name: Literal["multilingual-e5-small"] = MULTILINGUAL


class _RemoteEntry(_Entry):
    name: Name
    model: str = ""
    dimension: int = Field(ge=1, le=65_536)
    max_tokens: int = Field(512, ge=32, le=1_000_000)
    tokenizer: ExistingFile | None = None
    api_key: Secret | None = None
    batch: int = Field(32, ge=1, le=2048)
    concurrency: int = Field(4, ge=1, le=256)
    tries: int = Field(4, ge=1, le=10)
    timeout: Seconds = 30.0
    query_prefix: _Prefix = ""
    passage_prefix: _Prefix = ""
    cosine_floor: float = Field(0.0, ge=0, lt=1)


class OpenAIEntry(_RemoteEntry):
    """A model on a server with the OpenAI API."""

    kind: Literal["openai"]
    url: Url
    ask_dimension: bool = False


class TritonEntry(_RemoteEntry):
    """A model on a Triton Inference Server."""

    kind: Literal["triton"]
    url: Target
    tls: bool = False
    ca_file: ExistingFile | None = None


Entry = Annotated[MiniLmEntry | E5Entry | OpenAIEntry | TritonEntry, Field(discriminator="kind")]


class EmbeddingsFile(_Entry):
    """The whole file; without ``default``, the first model is the default."""

    default: str = ""
    models: tuple[Entry, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Configured:
    """The content of a file.

    Attributes:
        document: The document, for error messages.
        models: The configurations, in the order of the file.
        default: The name of the model for new indexes.
    """

    document: Document
    models: tuple[EmbeddingConfig, ...]
    default: str


def read(path: Path, environ: Mapping[str, str]) -> Configured:
    """Return the content of a file.

    Args:
        path: The file. Relative paths in it are resolved against its directory.
        environ: The environment variables that the file may reference.

    Raises:
        BadFile: The content is invalid; the message names the file, the line and the key.
        OSError: The file cannot be read.
    """
    document = Document(path.read_bytes(), str(path))
    file = document.validated(EmbeddingsFile, {"environ": environ, "folder": path.parent})
    names = [entry.name for entry in file.models]
    document.check_names("models", names, file.default, what="model")
    return Configured(document, tuple(_config(entry) for entry in file.models), file.default or names[0])


def _config(entry: Entry) -> EmbeddingConfig:
    values = {name: getattr(entry, name) for name in type(entry).model_fields if name != "url"}
    if isinstance(entry, MiniLmEntry | E5Entry):
        return EmbeddingConfig(**values)
    return EmbeddingConfig(**{**values, "address": entry.url, "model": entry.model or entry.name})
