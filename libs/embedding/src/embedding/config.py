"""The configuration of an embedding model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import SecretStr


@dataclass(frozen=True, slots=True)
class EmbeddingConfig:
    """The configuration of an embedding model.

    Attributes:
        kind: ``minilm`` is bundled; ``e5`` is the optional multilingual model; ``openai`` is a server with the
            OpenAI API's ``/embeddings``; ``triton`` is a model on a Triton server with one input of strings and one
            output of FP32 vectors.
        cache_dir: For ``minilm`` and ``e5``: the directory of the cache.
        workers: For ``minilm`` and ``e5``: the number of texts that are embedded concurrently.
        address: For a server: the base URL with the version (``http://127.0.0.1:8000/v1``), or Triton's
            ``host:port``.
        model: The model's name on the server.
        name: The name that indexes record, so that vectors of different models are not compared; empty: ``model``.
        dimension: The length of the vectors.
        max_tokens: The maximum number of tokens of a text; longer texts are truncated.
        tokenizer: The model's ``tokenizer.json``; None: an approximation that usually counts too many tokens.
        ask_dimension: For ``openai``: send the dimension, for models that can shorten their vectors.
        api_key: The key; None if the server needs no key.
        tls: For ``triton``: whether the connection is encrypted.
        ca_file: For ``triton``: the PEM file with the CA certificates that verify the server's certificate; None:
            those that gRPC contains.
        batch: The maximum number of texts of a request.
        concurrency: The maximum number of concurrent requests.
        tries: The maximum number of attempts of a request if the server is busy or cannot be reached.
        timeout: The time-out of each attempt in seconds.
        query_prefix: The prefix that queries had in the model's training (``query: ``); empty: none.
        passage_prefix: The prefix that passages had in the model's training; empty: none.
        cosine_floor: The cosine that counts as similarity 0, near the typical cosine of unrelated texts.
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
        """The name of the model in Causeway: ``name``, or by default ``model``."""
        return self.name or self.model
