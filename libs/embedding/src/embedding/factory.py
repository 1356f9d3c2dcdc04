"""Creates the embedder of a configuration."""

from pathlib import Path

from embedding.config import EmbeddingConfig
from embedding.errors import SetupError
from embedding.port import Embedder


def create_embedder(config: EmbeddingConfig) -> Embedder:
    """Return the embedder of a configuration; all calls must run in the event loop of the first call.

    Raises:
        SetupError: The configuration is incomplete, or the files of the model or its tokenizer cannot be used; the
            message contains the remedy.
    """
    # Imported on use, because ONNX Runtime takes 40 MB, and Triton's client 15 MB.
    if config.kind in ("minilm", "e5"):
        if config.cache_dir is None:
            raise SetupError("A local embedding model needs the directory of its cache.")
        return _local(config.kind, config.cache_dir, config.workers)
    missing = [name for name in ("address", "model", "dimension") if not getattr(config, name)]
    if missing:
        raise SetupError(f"An embedding model of kind '{config.kind}' needs: {', '.join(missing)}.")
    from embedding.remote import RemoteEmbedder, Source

    source: Source
    if config.kind == "openai":
        from embedding.openai import OpenAISource

        source = OpenAISource(config)
    else:
        from embedding.triton import TritonSource

        source = TritonSource(config)
    return RemoteEmbedder(config, source)


def _local(kind: str, cache_dir: Path, workers: int) -> Embedder:
    if kind == "minilm":
        from embedding.minilm import MiniLmEmbedder

        return MiniLmEmbedder.load(cache_dir, workers)
    from embedding.e5 import E5Embedder

    return E5Embedder.load(cache_dir, workers)
