"""What is configured of an embedding model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import SecretStr


@dataclass(frozen=True, slots=True)
class EmbeddingConfig:
    """An embedding model.

    Attributes:
        kind: ``minilm`` is bundled; ``e5`` is the optional model for many languages; ``openai`` is a server with
            the OpenAI API's ``/embeddings``; ``triton`` is a model on a Triton server that turns one input of
            strings into one output of FP32 vectors.
        cache_dir: Of ``minilm`` and ``e5``: where their graphs are.
        workers: Of ``minilm`` and ``e5``: texts that are embedded at the same time.
        address: Of a server: base URL with its version (``http://127.0.0.1:8000/v1``), or Triton's ``host:port``.
        model: What the server calls the model.
        name: What an index records, so that vectors of two models are never compared; empty: as ``model``.
        dimension: Length of its vectors.
        max_tokens: How much of a text it reads; what is longer is cut here.
        tokenizer: Its ``tokenizer.json``; None for an approximation that counts rather more tokens than fewer.
        ask_dimension: Of ``openai``: the server is told the dimension, for models that can shorten their vectors.
        api_key: None where the server wants none.
        tls: Of ``triton``: the connection is encrypted.
        ca_file: Of ``triton``: certificates that it is checked against; None: the system's.
        batch: Most texts of a request.
        concurrency: Most requests at a time.
        tries: How often a request is sent that the server is too busy for, or that does not reach it.
        timeout: Seconds for each of them.
        query_prefix: Stands before queries, where the model was trained so (``query: ``).
        passage_prefix: Likewise before passages.
        cosine_floor: Cosine that texts have which have nothing to do with each other.
    """

    kind: Literal["minilm", "e5", "openai", "triton"] = "minilm"
    cache_dir: Path | None = None
    workers: int = 2
    address: str = ""
    model: str = ""
    name: str = ""
    dimension: int = 0
    max_tokens: int = 512
    tokenizer: Path | None = None
    ask_dimension: bool = False
    api_key: SecretStr | None = None
    tls: bool = False
    ca_file: Path | None = None
    batch: int = 32
    concurrency: int = 4
    tries: int = 4
    timeout: float = 30.0
    query_prefix: str = ""
    passage_prefix: str = ""
    cosine_floor: float = 0.0

    @property
    def public_name(self) -> str:
        """What the platform calls the model."""
        return self.name or self.model
