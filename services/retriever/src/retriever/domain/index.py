"""Indexes: their specifications, settings and errors."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Self

from servicekit.errors import InvalidRequest, NotFound, Unavailable

from retriever.domain.language import LEGACY

_CHUNK_TOKENS = range(16, 8193)


class Fusion(Enum):
    """How a hybrid search fuses its rankings."""

    SCORES = "scores"
    RANKS = "ranks"


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """The settings of one index. If a setting is None, the default of the service that uses it applies.

    The retriever uses ``fusion``, ``dense_weight`` and ``expand``. Ingest uses the others.

    Attributes:
        chunk_tokens: Maximum number of tokens of a chunk's text.
        chunk_overlap: Maximum number of tokens that a chunk repeats of the previous chunk.
        fusion: Default fusion of hybrid searches.
        dense_weight: Default weight of the dense ranking in hybrid searches, 0 to 1.
        expand: Whether searches expand the query by default.
        ocr: Whether ingestion recognises text in images.
    """

    chunk_tokens: int | None = None
    chunk_overlap: int | None = None
    fusion: Fusion | None = None
    dense_weight: float | None = None
    expand: bool | None = None
    ocr: bool | None = None

    def checked(self) -> Self:
        """Return the settings after checking them.

        Raises:
            InvalidRequest: A setting is wrong.
        """
        tokens, overlap = self.chunk_tokens, self.chunk_overlap
        if tokens is not None and tokens not in _CHUNK_TOKENS:
            raise InvalidRequest(
                f"chunk_tokens is a number from {_CHUNK_TOKENS[0]} to {_CHUNK_TOKENS[-1]}.",
                field="settings.chunk_tokens",
            )
        if overlap is not None and overlap >= (tokens or _CHUNK_TOKENS[-1]):
            raise InvalidRequest("chunk_overlap must be less than chunk_tokens.", field="settings.chunk_overlap")
        if self.dense_weight is not None and not 0 <= self.dense_weight <= 1:
            raise InvalidRequest("dense_weight is a number from 0 to 1.", field="settings.dense_weight")
        return self

    def changed(self, new: "IndexSettings", names: Iterable[str]) -> "IndexSettings":
        """Return a copy of these settings with new values for the named settings.

        Raises:
            InvalidRequest: A name is not a setting, or a value is wrong.
        """
        names, known = tuple(names), {field.name for field in fields(self)}
        if unknown := sorted(set(names) - known):
            name = unknown[0][:100]
            raise InvalidRequest(
                f"'{name}' is not a setting that can be changed in place.", field=f"settings.{name}"
            )
        return replace(self, **{name: getattr(new, name) for name in names}).checked()

    def names(self) -> tuple[str, ...]:
        """Return the names of the settings that are not None."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name) is not None)


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """The specification of an index. Only ``settings`` can be changed without a rebuild.

    ``language`` is the language of the index for text search (`domain.language`). Earlier versions did
    not store it. Their indexes have `LEGACY`.
    """

    tenant: str
    name: str
    embedding_model: str
    dimension: int
    settings: IndexSettings = IndexSettings()
    language: str = LEGACY

    @property
    def space(self) -> tuple[str, int]:
        """The vector space. A query has one vector for all indexes of the same space."""
        return self.embedding_model, self.dimension


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """An index with the numbers of documents and chunks that the caller may see."""

    spec: IndexSpec
    documents: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Contents:
    """The numbers of documents and chunks in a snapshot or an index."""

    documents: int
    chunks: int


class Replaced(Unavailable):
    """Another collection has replaced the index. A retry finds the new collection."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Index '{name}' was replaced just now. Repeat the request.", resource=name)


def no_such_index(name: str) -> NotFound:
    """Return the error for an index that the tenant does not have."""
    return NotFound(f"No such index: '{name}' exists.", field="index", resource=name)
