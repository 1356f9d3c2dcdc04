"""The embedding models of a service, by name."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
from servicekit.errors import Unavailable
from servicekit.yaml_file import setting_errors

from embedding import file
from embedding.cache import E5, MINILM, MULTILINGUAL, CachedModel, model_directory
from embedding.config import EmbeddingConfig
from embedding.errors import SetupError
from embedding.factory import create_embedder
from embedding.observed import ObservedEmbedder
from embedding.port import Embedder, check_texts

_MIN_TOKENS = 16
_LocalKind = Literal["minilm", "e5"]
_LOCAL: Mapping[_LocalKind, CachedModel] = {"minilm": MINILM, "e5": E5}


class PrefixedEmbedder:
    """Adds a prefix to each text, for models that need a prefix (E5: ``query: `` and ``passage: ``).

    Args:
        embedder: The embedder.
        prefix: The prefix, whose tokens count against the model's limit.
        tokens: The number of tokens of the prefix; None: count them.

    Raises:
        SetupError: The prefix leaves too few tokens for the text.
    """

    def __init__(self, embedder: Embedder, prefix: str, tokens: int | None = None) -> None:
        self.model = embedder.model
        self.dimension = embedder.dimension
        self.max_tokens = embedder.max_tokens - (embedder.tokenizer.count(prefix) if tokens is None else tokens)
        self.tokenizer = embedder.tokenizer
        if self.max_tokens < _MIN_TOKENS:
            raise SetupError(
                f"The prefix {prefix!r} leaves only {self.max_tokens} tokens for a text; use a shorter prefix."
            )
        self._embedder = embedder
        self._prefix = prefix

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embed prefix and text together; see `embedding.port.Embedder.embed`."""
        check_texts(texts)  # before the prefix makes a blank text valid
        return await self._embedder.embed([self._prefix + text for text in texts])

    async def aclose(self) -> None:
        """Close the embedder; see `embedding.port.Embedder.aclose`."""
        await self._embedder.aclose()


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A model with its three embedders.

    Attributes:
        plain: Embeds texts without a prefix.
        queries: Embeds queries with the model's prefix.
        passages: Embeds passages with the model's prefix.
        cosine_floor: The cosine that counts as similarity 0, near the typical cosine of unrelated texts.
    """

    plain: Embedder
    queries: Embedder
    passages: Embedder
    cosine_floor: float = 0.0

    @classmethod
    def of(
        cls,
        embedder: Embedder,
        query_prefix: str = "",
        passage_prefix: str = "",
        *,
        prefix_tokens: int | None = None,
        cosine_floor: float = 0.0,
    ) -> Self:
        """Return a model with its prefixes.

        Args:
            embedder: The embedder without a prefix.
            query_prefix: The prefix of queries; empty: none.
            passage_prefix: The prefix of passages; empty: none.
            prefix_tokens: The number of tokens of each prefix; None: count them.
            cosine_floor: The cosine that counts as similarity 0, near the typical cosine of unrelated texts.

        Raises:
            SetupError: A prefix leaves too few tokens for the text.
        """
        return cls(
            embedder,
            PrefixedEmbedder(embedder, query_prefix, prefix_tokens) if query_prefix else embedder,
            PrefixedEmbedder(embedder, passage_prefix, prefix_tokens) if passage_prefix else embedder,
            cosine_floor,
        )

    @property
    def name(self) -> str:
        """The name in the records of indexes."""
        return self.plain.model

    @property
    def dimension(self) -> int:
        """The length of the vectors."""
        return self.plain.dimension

    def similarity(self, cosine: float) -> float:
        """Return the similarity for a cosine, -1 to 1: 0 at the model's floor, 1 for the same text.

        The same threshold, or the same share of the best similarity, is therefore useful for every model.
        """
        if not self.cosine_floor:
            return cosine
        return max(-1.0, (cosine - self.cosine_floor) / (1 - self.cosine_floor))


class EmbeddingModels:
    """Models by name. Connections open on the first call, so that servers need not run at the start.

    Args:
        models: At least one model; the first one is the default for new indexes.
    """

    def __init__(self, models: Sequence[EmbeddingModel]) -> None:
        self._models = {model.name: model for model in models}
        self.default = models[0]

    @classmethod
    def open(cls, path: Path | None, environ: Mapping[str, str], *, cache_dir: Path, workers: int) -> Self:
        """Return the models of a file; without a file, the bundled model and, if built, the multilingual model.

        Args:
            path: The ``embeddings.yaml``.
            environ: The environment variables that the file may reference.
            cache_dir: The directory of the cache of local models.
            workers: The number of texts that each local model embeds concurrently.

        Raises:
            InvalidRequest: The file is invalid; the message has file, line and key.
            Unavailable: A local model is not built, or its files cannot be loaded.
        """
        try:
            if path is None:
                kinds: list[_LocalKind] = (
                    ["minilm", "e5"] if model_directory(cache_dir, "int8", E5).is_dir() else ["minilm"]
                )
                return cls([_local(kind, cache_dir, workers) for kind in kinds])
            with setting_errors("embeddings_file"):
                configured = file.read(path, environ)
                opened = [
                    _local(config.kind, cache_dir, workers)
                    if config.kind == "minilm" or config.kind == "e5"
                    else _remote(configured, index, config)
                    for index, config in enumerate(configured.models)
                ]
        except SetupError as error:
            raise Unavailable(str(error)) from error
        return cls(sorted(opened, key=lambda model: model.name != configured.default))

    def get(self, name: str) -> EmbeddingModel | None:
        """Return a model by its name, or None."""
        return self._models.get(name)

    def unknown_message(self, name: str) -> str:
        """Return the error message about an unknown model, with the names of the configured models."""
        known = ", ".join(f"'{model.name}'" for model in self)
        return f"No such embedding model: '{name}'. Configured models: {known}.{self.install_hint(name)}"

    def install_hint(self, name: str) -> str:
        """Return the instructions to install an optional model; an empty text for other models."""
        if name != MULTILINGUAL:
            return ""
        return (
            f" `make multilingual` builds '{name}'; list it in the file of embedding models, if there is one, and "
            "restart retriever and ingest."
        )

    def find(self, name: str, dimension: int) -> EmbeddingModel | None:
        """Return the model with this name and dimension, or None."""
        model = self._models.get(name)
        return model if model is not None and model.dimension == dimension else None

    def __iter__(self) -> Iterator[EmbeddingModel]:
        """Yield all models, the default model first."""
        return iter(self._models.values())

    async def aclose(self) -> None:
        """Close all models; see `embedding.port.Embedder.aclose`."""
        async with AsyncExitStack() as closing:
            for model in self:
                closing.push_async_callback(model.plain.aclose)


def _observed(config: EmbeddingConfig) -> Embedder:
    return ObservedEmbedder(create_embedder(config), config.kind)


def _local(kind: _LocalKind, cache_dir: Path, workers: int) -> EmbeddingModel:
    model = _LOCAL[kind]
    return EmbeddingModel.of(
        _observed(EmbeddingConfig(kind, cache_dir=cache_dir, workers=workers)),
        model.query_prefix,
        model.passage_prefix,
        prefix_tokens=model.prefix_tokens,
        cosine_floor=model.cosine_floor,
    )


def _remote(configured: file.Configured, index: int, config: EmbeddingConfig) -> EmbeddingModel:
    try:
        return EmbeddingModel.of(
            _observed(config), config.query_prefix, config.passage_prefix, cosine_floor=config.cosine_floor
        )
    except SetupError as error:
        raise configured.document.wrong(("models", index), str(error)) from error
