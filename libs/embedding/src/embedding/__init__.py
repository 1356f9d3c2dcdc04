"""Converts text to vectors, for the retriever (queries) and for ingest (chunks).

- `embedding.port`: the interfaces of embedders and tokenizers; `causeway_testing.embedding` has fakes.
- `embedding.minilm`: the bundled all-MiniLM-L6-v2, offline, int8 on the CPU. It reads the output of
  ``python -m embedding.build``, which uses `weights`, `graph`, `quantization` and `cache` in this order.
- `embedding.e5`: the optional multilingual-e5-small, built by ``python -m embedding.build --multilingual``.
- `embedding.remote`: models of servers, in batches, with retries, through `embedding.openai` or `embedding.triton`.
- `embedding.create_embedder` returns the embedder of a configuration.
- `embedding.models`: all models of a service; `embedding.file` reads their configuration, ``embeddings.yaml``.
"""

from embedding.config import EmbeddingConfig
from embedding.factory import create_embedder

__all__ = ["EmbeddingConfig", "create_embedder"]
