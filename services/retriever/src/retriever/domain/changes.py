"""Changes of documents: requests and their outcomes."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from servicekit.principal import Principal

from retriever.domain.document import Chunk, Document


@dataclass(frozen=True, slots=True)
class Begin:
    """The head of an upsert."""

    principal: Principal
    index: str
    document: Document
    embedding_model: str
    dimension: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of an upsert."""

    chunk_count: int


UpsertStep = Begin | Sequence[Chunk] | Commit


class Outcome(Enum):
    """The outcome of an upsert."""

    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Upserted:
    """The document after an upsert."""

    outcome: Outcome
    document: Document


@dataclass(frozen=True, slots=True)
class Updated:
    """The document after an update. ``changed``: whether a field other than the generation changed."""

    changed: bool
    document: Document


@dataclass(frozen=True, slots=True)
class Deleted:
    """The deleted documents, and the ids of documents that do not exist or that the caller may not see."""

    documents: tuple[Document, ...]
    not_found: tuple[str, ...]
