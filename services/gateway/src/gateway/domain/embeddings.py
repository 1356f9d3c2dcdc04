"""The types of embedding requests."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """An embedding model.

    Attributes:
        dimension: The number of dimensions of the model's vectors.
        max_tokens: The maximum number of tokens of a text. A vector does not represent further tokens.
    """

    name: str
    dimension: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Embeddings:
    """The vectors of texts, each of length 1, in the order of the texts.

    Attributes:
        model: The name of the model.
        tokens: The number of tokens of all texts.
    """

    model: str
    vectors: tuple[Sequence[float], ...]
    tokens: int
