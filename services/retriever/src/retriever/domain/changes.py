"""Changes of documents: what a caller asks for, and what became of it."""

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
    """What became of an upsert."""

    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class Upserted:
    """The document as it stands after an upsert."""

    outcome: Outcome
    document: Document


@dataclass(frozen=True, slots=True)
class Updated:
    """The document as it stands after an update; ``changed``: something besides its generation is other."""

    changed: bool
    document: Document


@dataclass(frozen=True, slots=True)
class Deleted:
    """Documents that were removed, as they were, and the ids of those that are not there for the asker."""

    documents: tuple[Document, ...]
    not_found: tuple[str, ...]
