"""Text to vectors, for the retriever (queries) and for ingest (chunks).

- `embedding.port`: what an embedder and a tokenizer are; `causeway_testing.embedding` stands beside it.
- `embedding.minilm`: the bundled all-MiniLM-L6-v2, offline, int8 on the CPU. It reads what
  ``python -m embedding.build`` wrote: `weights` (checked) → `graph` (written) → `quantization` → `cache` (kept).
- `embedding.e5`: the optional multilingual-e5-small, likewise (``python -m embedding.build --multilingual``).
- `embedding.remote`: models of servers, in batches, with retries, through `embedding.openai` or `embedding.triton`.
- `embedding.make` makes the one that a configuration asks for.
- `embedding.models`: all those of a service, as `embedding.file` (``embeddings.yaml``) says.
"""

from embedding.config import EmbeddingConfig
from embedding.factory import make

__all__ = ["EmbeddingConfig", "make"]
