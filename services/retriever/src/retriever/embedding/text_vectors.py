"""Vectors of texts, for callers without an embedding model."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from embedding.models import EmbeddingModels
from embedding.port import Embedder, check_texts
from servicekit.errors import InvalidRequest, NotFound, PayloadTooLarge

MAX_TEXTS = 256
MAX_TEXT_LENGTH = 100_000  # code points; counting their tokens blocks the event loop for 50 ms
MAX_TOTAL_LENGTH = 1_000_000  # code points of all texts


@dataclass(frozen=True, slots=True)
class TextVector:
    """A text's vector (L2-normalised), its number of tokens, and how many tokens from its start were embedded."""

    vector: Sequence[float]
    tokens: int
    embedded_tokens: int


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vectors of texts, in their order."""

    model: str
    vectors: tuple[TextVector, ...]


class Embeddings:
    """Embeds texts with the models of the indexes.

    It adds no prefix to the texts. If a model requires a prefix for queries, the caller adds the prefix.

    Args:
        models: The configured models.
    """

    def __init__(self, models: EmbeddingModels) -> None:
        self._models = models

    @property
    def models(self) -> Sequence[Embedder]:
        """The models, default first."""
        return tuple(model.plain for model in self._models)

    async def embed(self, model: str, texts: Sequence[str]) -> Embedded:
        """Embed texts. Texts that are too long for the model are truncated.

        Raises:
            NotFound: The model does not exist.
            InvalidRequest: A text is wrong; no text was embedded.
            Unavailable, DeadlineExceeded, RateLimited: The model is closed, or its server does not respond.
        """
        found = self._models.get(model) if model else self._models.default
        if found is None:
            raise NotFound(self._models.unknown_message(model), resource=model)
        embedder = found.plain
        _check(texts)
        vectors = await embedder.embed(texts)
        # A tokenizer may hold the GIL. Separate calls let the loop run between two texts.
        counts = [await asyncio.to_thread(embedder.tokenizer.count, text) for text in texts]
        return Embedded(
            embedder.model,
            tuple(
                TextVector(vector.tolist(), count, min(count, embedder.max_tokens))
                for vector, count in zip(vectors, counts, strict=True)
            ),
        )


def _check(texts: Sequence[str]) -> None:
    if not 1 <= len(texts) <= MAX_TEXTS:
        raise InvalidRequest(f"1 to {MAX_TEXTS} texts can be embedded at once.", field="texts")
    for position, text in enumerate(texts):
        if len(text) > MAX_TEXT_LENGTH:
            raise PayloadTooLarge(f"A text has at most {MAX_TEXT_LENGTH} characters.", field=f"texts[{position}]")
    if sum(map(len, texts)) > MAX_TOTAL_LENGTH:
        raise PayloadTooLarge(f"The texts have at most {MAX_TOTAL_LENGTH} characters in total.", field="texts")
    check_texts(texts)
