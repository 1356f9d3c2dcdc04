"""What the gateway speaks of where texts become vectors."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A model that makes vectors.

    Attributes:
        dimension: Length of its vectors.
        max_tokens: Tokens of a text that reach its vector.
    """

    name: str
    dimension: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class Embeddings:
    """The vectors of texts, each of length 1, in the texts' order.

    Attributes:
        model: Who made them.
        tokens: Tokens that they were made from, in all.
    """

    model: str
    vectors: tuple[Sequence[float], ...]
    tokens: int
