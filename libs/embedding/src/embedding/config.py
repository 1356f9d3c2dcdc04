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
        workers: For ``minilm`` and ``e5``: texts that are embedded concurrently.
        address: Of a server: base URL with its version (``http://127.0.0.1:8000/v1``), or Triton's ``host:port``.
        model: The server's name for the model.
        name: The name in the records of indexes, so that vectors of different models are never compared; empty:
            ``model``.
        dimension: Length of its vectors.
        max_tokens: Maximum number of tokens of a text; longer texts are truncated.
        tokenizer: Its ``tokenizer.json``; None: an approximation that usually counts too many tokens.
        ask_dimension: For ``openai``: send the dimension, for models that can shorten their vectors.
        api_key: None if the server needs no key.
        tls: For ``triton``: whether the connection is encrypted.
        ca_file: For ``triton``: the authorities of the server's certificate; None: the system's.
        batch: Maximum number of texts of a request.
        concurrency: Limit of concurrent requests.
        tries: Attempts of a request if the server is busy or cannot be reached.
        timeout: Seconds for each attempt.
        query_prefix: The prefix of queries, if the model was trained with one (``query: ``).
        passage_prefix: The prefix of passages, if the model was trained with one.
        cosine_floor: The typical cosine of unrelated texts.
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
        """The name of the model in Causeway."""
        return self.name or self.model
