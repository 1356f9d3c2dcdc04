"""The embedding models that a service has, by their names."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import numpy as np
import numpy.typing as npt
from servicekit.errors import Unavailable
from servicekit.yaml_file import of_setting

from embedding import file
from embedding.cache import E5, MINILM, MULTILINGUAL, CachedModel, entry
from embedding.config import EmbeddingConfig
from embedding.errors import SetupError
from embedding.factory import make
from embedding.observed import ObservedEmbedder
from embedding.port import Embedder, check_texts

_LEAST_TOKENS = 16
_LocalKind = Literal["minilm", "e5"]
_LOCAL: Mapping[_LocalKind, CachedModel] = {"minilm": MINILM, "e5": E5}


class PrefixedEmbedder:
    """Puts a prefix before each text, as models want that were trained so (E5: ``query: `` and ``passage: ``).

    Args:
        embedder: Embeds.
        prefix: Takes its tokens of what the model reads.
        tokens: How many, where that is known.

    Raises:
        SetupError: It leaves too little for the text.
    """

    def __init__(self, embedder: Embedder, prefix: str, tokens: int | None = None) -> None:
        self.model = embedder.model
        self.dimension = embedder.dimension
        self.max_tokens = embedder.max_tokens - (embedder.tokenizer.count(prefix) if tokens is None else tokens)
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
        cosine_floor: Cosine that texts have which have nothing to do with each other.
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
        """A model with its prefixes, and their tokens where these are known.

        Raises:
            SetupError: A prefix leaves too little for the text.
        """
        return cls(
            embedder,
            PrefixedEmbedder(embedder, query_prefix, prefix_tokens) if query_prefix else embedder,
            PrefixedEmbedder(embedder, passage_prefix, prefix_tokens) if passage_prefix else embedder,
            cosine_floor,
        )

    @property
    def name(self) -> str:
        """What an index records."""
        return self.plain.model

    @property
    def dimension(self) -> int:
        """Length of its vectors."""
        return self.plain.dimension

    def similarity(self, cosine: float) -> float:
        """What a cosine says, -1 to 1: 0 at the model's floor, 1 for the same text.

        So it can be compared with thresholds, and taken as a share of the best one, of any model.
        """
        if not self.cosine_floor:
            return cosine
        return max(-1.0, (cosine - self.cosine_floor) / (1 - self.cosine_floor))


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
        """The models of a file; without one the bundled model, and the one for many languages where it is built.

        Args:
            path: ``embeddings.yaml``.
            environ: Variables that it may name.
            cache_dir: Where the graphs of this machine's models are.
            workers: Texts that each of these embeds at the same time.

        Raises:
            InvalidRequest: The file cannot be used; the message has file, line and key.
            Unavailable: A model of this machine is not built.
        """
        try:
            if path is None:
                kinds: list[_LocalKind] = ["minilm", "e5"] if entry(cache_dir, "int8", E5).is_dir() else ["minilm"]
                return cls([_local(kind, cache_dir, workers) for kind in kinds])
            with of_setting("embeddings_file"):
                configured = file.read(path, environ)
                opened = [
                    _local(config.kind, cache_dir, workers)
                    if config.kind == "minilm" or config.kind == "e5"
                    else _remote(configured, at, config)
                    for at, config in enumerate(configured.models)
                ]
        except SetupError as error:
            raise Unavailable(str(error)) from error
        return cls(sorted(opened, key=lambda model: model.name != configured.default))

    def get(self, name: str) -> EmbeddingModel | None:
        """A model, if it is one of these."""
        return self._models.get(name)

    def hint(self, name: str) -> str:
        """What to say after a message that a model is not configured: how it is installed, if that is known."""
        if name != MULTILINGUAL:
            return ""
        return (
            f" `make multilingual` builds '{name}'; list it in the file of embedding models, if there is one, and "
            "restart retriever and ingest."
        )

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


def _local(kind: _LocalKind, cache_dir: Path, workers: int) -> EmbeddingModel:
    model = _LOCAL[kind]
    return EmbeddingModel.of(
        _made(EmbeddingConfig(kind, cache_dir=cache_dir, workers=workers)),
        model.query_prefix,
        model.passage_prefix,
        prefix_tokens=model.prefix_tokens,
        cosine_floor=model.cosine_floor,
    )


def _remote(configured: file.Configured, at: int, config: EmbeddingConfig) -> EmbeddingModel:
    try:
        return EmbeddingModel.of(
            _made(config), config.query_prefix, config.passage_prefix, cosine_floor=config.cosine_floor
        )
    except SetupError as error:
        raise configured.document.wrong(("models", at), str(error)) from error
