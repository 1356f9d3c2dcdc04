"""The embedding models that a service has, by their names."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import numpy.typing as npt
from servicekit.errors import Unavailable
from servicekit.yaml_file import of_setting

from embedding import file
from embedding.config import EmbeddingConfig
from embedding.errors import SetupError
from embedding.factory import make
from embedding.observed import ObservedEmbedder
from embedding.port import Embedder, check_texts

_LEAST_TOKENS = 16


class PrefixedEmbedder:
    """Puts a prefix before each text, as models want that were trained so (E5: ``query: `` and ``passage: ``).

    Args:
        embedder: Embeds.
        prefix: Takes its tokens of what the model reads.

    Raises:
        SetupError: It leaves too little for the text.
    """

    def __init__(self, embedder: Embedder, prefix: str) -> None:
        self.model = embedder.model
        self.dimension = embedder.dimension
        self.max_tokens = embedder.max_tokens - embedder.tokenizer.count(prefix)
        self.tokenizer = embedder.tokenizer
        if self.max_tokens < _LEAST_TOKENS:
            raise SetupError(f"The prefix {prefix!r} leaves {self.max_tokens} tokens for a text.")
        self._embedder = embedder
        self._prefix = prefix

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Embeds prefix and text as one; see `embedding.port.Embedder.embed`."""
        check_texts(texts)  # behind a prefix a blank text would not be seen
        return await self._embedder.embed([self._prefix + text for text in texts])

    async def aclose(self) -> None:
        """Closes the embedder; see `embedding.port.Embedder.aclose`."""
        await self._embedder.aclose()


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A model, in three views.

    Attributes:
        plain: Embeds texts as they are.
        queries: Embeds what is searched for, with the model's prefix.
        passages: Embeds what is found, with the model's prefix.
    """

    plain: Embedder
    queries: Embedder
    passages: Embedder

    @classmethod
    def of(cls, embedder: Embedder, query_prefix: str = "", passage_prefix: str = "") -> Self:
        """A model with its prefixes.

        Raises:
            SetupError: A prefix leaves too little for the text.
        """
        return cls(
            embedder,
            PrefixedEmbedder(embedder, query_prefix) if query_prefix else embedder,
            PrefixedEmbedder(embedder, passage_prefix) if passage_prefix else embedder,
        )

    @property
    def name(self) -> str:
        """What an index records."""
        return self.plain.model

    @property
    def dimension(self) -> int:
        """Length of its vectors."""
        return self.plain.dimension


class EmbeddingModels:
    """Models by name. Connections to servers are opened by the first call, so a server may be away at the start.

    Args:
        models: At least one; the first is the default, which new indexes are made with.
    """

    def __init__(self, models: Sequence[EmbeddingModel]) -> None:
        self._models = {model.name: model for model in models}
        self.default = models[0]

    @classmethod
    def open(cls, path: Path | None, environ: Mapping[str, str], *, cache_dir: Path, workers: int) -> Self:
        """The models of a file; without one the bundled model alone.

        Args:
            path: ``embeddings.yaml``.
            environ: Variables that it may name.
            cache_dir: Where the bundled model's graph is; looked at only if that is one of the models.
            workers: Texts that the bundled model embeds at the same time.

        Raises:
            InvalidRequest: The file cannot be used; the message has file, line and key.
            Unavailable: The bundled model is not built.
        """
        bundled = EmbeddingConfig("minilm", cache_dir=cache_dir, workers=workers)
        try:
            if path is None:
                return cls([EmbeddingModel.of(_made(bundled))])
            with of_setting("embeddings_file"):
                configured = file.read(path, environ)
                opened = [
                    EmbeddingModel.of(_made(bundled)) if config.kind == "minilm" else _open(configured, at, config)
                    for at, config in enumerate(configured.models)
                ]
        except SetupError as error:
            raise Unavailable(str(error)) from error
        return cls(sorted(opened, key=lambda model: model.name != configured.default))

    def get(self, name: str) -> EmbeddingModel | None:
        """A model, if it is one of these."""
        return self._models.get(name)

    def fitting(self, name: str, dimension: int) -> EmbeddingModel | None:
        """The model that makes such vectors, if it is one of these."""
        model = self._models.get(name)
        return model if model is not None and model.dimension == dimension else None

    def __iter__(self) -> Iterator[EmbeddingModel]:
        """All of them, the default first."""
        return iter(self._models.values())

    async def aclose(self) -> None:
        """Closes them all; see `embedding.port.Embedder.aclose`."""
        async with AsyncExitStack() as closing:
            for model in self:
                closing.push_async_callback(model.plain.aclose)


def _made(config: EmbeddingConfig) -> Embedder:
    return ObservedEmbedder(make(config), config.kind)


def _open(configured: file.Configured, at: int, config: EmbeddingConfig) -> EmbeddingModel:
    try:
        return EmbeddingModel.of(_made(config), config.query_prefix, config.passage_prefix)
    except SetupError as error:
        raise configured.document.wrong(("models", at), str(error)) from error
