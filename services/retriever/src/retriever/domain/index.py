"""Indexes: what they are, their settings, and the errors that name them."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Self

from servicekit.errors import InvalidRequest, NotFound, Unavailable

from retriever.domain.language import LEGACY

_CHUNK_TOKENS = range(16, 8193)


class Fusion(Enum):
    """How the rankings of a hybrid search become one."""

    SCORES = "scores"
    RANKS = "ranks"


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """What holds for an index alone; None: what the service that asks was configured with.

    Attributes:
        chunk_tokens: Most tokens of a chunk's text.
        chunk_overlap: Most tokens that a chunk repeats of the one before.
        fusion: How a search fuses that does not say.
        dense_weight: What meaning counts for in a hybrid search that does not say, 0 to 1.
        expand: Whether a search that does not say looks for further words.
        ocr: Whether text in images is recognised for what is added.
    """

    chunk_tokens: int | None = None
    chunk_overlap: int | None = None
    fusion: Fusion | None = None
    dense_weight: float | None = None
    expand: bool | None = None
    ocr: bool | None = None

    def checked(self) -> Self:
        """Return the settings, once they are known to make sense.

        Raises:
            InvalidRequest: Naming the field.
        """
        tokens, overlap = self.chunk_tokens, self.chunk_overlap
        if tokens is not None and tokens not in _CHUNK_TOKENS:
            raise InvalidRequest(
                f"A chunk has {_CHUNK_TOKENS[0]} to {_CHUNK_TOKENS[-1]} tokens.", field="settings.chunk_tokens"
            )
        if overlap is not None and overlap >= (tokens or _CHUNK_TOKENS[-1]):
            raise InvalidRequest(
                "A chunk repeats fewer tokens of the one before than it has.", field="settings.chunk_overlap"
            )
        if self.dense_weight is not None and not 0 <= self.dense_weight <= 1:
            raise InvalidRequest("dense_weight is a number from 0 to 1.", field="settings.dense_weight")
        return self

    def changed(self, new: "IndexSettings", names: Iterable[str]) -> "IndexSettings":
        """Return these settings with the named ones of the new ones.

        Raises:
            InvalidRequest: A name is not that of a setting, or the result makes no sense.
        """
        names, known = tuple(names), {each.name for each in fields(self)}
        if unknown := sorted(set(names) - known):
            name = unknown[0][:100]
            raise InvalidRequest(f"'{name}' is no setting that can be changed in place.", field=f"settings.{name}")
        return replace(self, **{name: getattr(new, name) for name in names}).checked()

    def names(self) -> tuple[str, ...]:
        """Return the names of the settings that are not None."""
        return tuple(each.name for each in fields(self) if getattr(self, each.name) is not None)


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """What an index is, as long as it exists, or until it is rebuilt.

    ``language`` is that of its texts for text search (`domain.language`); earlier versions stored none.
    """

    tenant: str
    name: str
    embedding_model: str
    dimension: int
    settings: IndexSettings = IndexSettings()
    language: str = LEGACY

    @property
    def space(self) -> tuple[str, int]:
        """Where its vectors lie: a query has one vector for all indexes of the same space."""
        return self.embedding_model, self.dimension


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """An index, with the numbers of what the asker may see in it."""

    spec: IndexSpec
    documents: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Contents:
    """What a snapshot or an index holds."""

    documents: int
    chunks: int


class Replaced(Unavailable):
    """Another collection has taken the index's place; whoever asks again gets that one."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Index '{name}' was replaced just now.", resource=name)


def no_such_index(name: str) -> NotFound:
    """The error for an index that does not exist, or not for this tenant."""
    return NotFound(f"No such index: '{name}' exists.", field="index", resource=name)
