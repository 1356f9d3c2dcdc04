"""Make the embedder that a configuration asks for."""

from embedding.config import EmbeddingConfig
from embedding.errors import SetupError
from embedding.port import Embedder


def make(config: EmbeddingConfig) -> Embedder:
    """Return the embedder of a configuration; it belongs to the event loop that it is first used in.

    Raises:
        SetupError: The configuration is incomplete; the message says what is missing.
    """
    if config.kind == "minilm":
        # Each is imported when it is asked for: the graph's runtime takes 40 MB, Triton's client 15.
        from embedding.minilm import MiniLmEmbedder

        if config.cache_dir is None:
            raise SetupError("The bundled embedding model needs the directory of its cache.")
        return MiniLmEmbedder.load(config.cache_dir, workers=config.workers)
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
