"""What the retriever speaks of: documents, chunks, conditions, queries, passages. No wire type, no store's type."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import NamedTuple

from servicekit.errors import NotFound, Unavailable
from servicekit.principal import Principal

EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class AccessControl:
    """Who may see a document; both lists empty: everybody in its tenant."""

    oids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A record of the catalogue; the fields are those of ``document.proto``."""

    document_id: str
    sourcefile: str = ""
    content_type: str = ""
    sha256: str = ""
    size_bytes: int = 0
    metadata_json: bytes = b""
    access: AccessControl = AccessControl()
    category: str = ""
    language: str = ""
    generation: int = 0
    page_count: int = 0
    chunk_count: int = 0
    updated_at: datetime = EPOCH
    has_pictures: bool = False
    original: str = ""

    @property
    def version(self) -> "Version":
        """This generation of this document."""
        return Version(self.document_id, self.generation)

    def cited_as(self, page: int) -> str:
        """How a page of it is cited: ``file.pdf#page=3``; page 0 stands for a format without pages."""
        name = self.sourcefile or self.document_id
        return f"{name}#page={page}" if page else name


class Version(NamedTuple):
    """One generation of one document."""

    document_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """One retrievable piece of a document.

    ``text`` is shown and cited, ``indexed_text`` is what ``vector`` (L2-normalised) and the words are made of. The
    first ``overlap`` code points of the text repeat the chunk before; where none do, ``separator`` stands between
    the two in the document, None for a blank line.
    """

    number: int
    text: str
    indexed_text: str
    page: int = 0
    headings: tuple[str, ...] = ()
    vector: Sequence[float] = ()
    overlap: int = 0
    separator: str | None = None


Scalar = str | int | float | bool


@dataclass(frozen=True, slots=True)
class MatchAny:
    """The field, or one item of it where it is a list, equals one of the values.

    A number equals a number of the same value, 1 and 1.0 for example; true, 1 and "1" are all different.
    """

    field: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """The field, or one item of it where it is a list, is a number within the bounds that are set."""

    field: str
    gt: float | None = None
    gte: float | None = None
    lt: float | None = None
    lte: float | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """All of ``must``, at least one of ``should`` where there is any, and none of ``must_not``."""

    must: tuple["Condition", ...] = ()
    should: tuple["Condition", ...] = ()
    must_not: tuple["Condition", ...] = ()

    def __bool__(self) -> bool:
        """Whether it says anything."""
        return bool(self.must or self.should or self.must_not)


Condition = MatchAny | Range | Filter

NO_FILTER = Filter()

PLAIN_FIELDS = frozenset({"document_id", "sourcefile", "category", "language", "page"})
METADATA_PREFIX = "metadata."


def is_field(name: str) -> bool:
    """Whether a condition may ask for the field: a plain one, or ``metadata.<key>`` with dots for nesting."""
    return name in PLAIN_FIELDS or (name.startswith(METADATA_PREFIX) and name != METADATA_PREFIX)


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
    """

    chunk_tokens: int | None = None
    chunk_overlap: int | None = None
    fusion: Fusion | None = None
    dense_weight: float | None = None
    expand: bool | None = None


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """What an index is, as long as it exists, or until it is rebuilt."""

    tenant: str
    name: str
    embedding_model: str
    dimension: int
    settings: IndexSettings = IndexSettings()

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


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The beginning of a document's text, and whether there is more of it."""

    text: str
    is_truncated: bool


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which page of a listing.

    Attributes:
        size: Most documents; 0: the default.
        token: The ``next_token`` of the page before; empty for the first.
        offset: Documents to pass over; None where the token says where the page begins.
        text_length: Code points to give of each document's text; None: none.
    """

    size: int = 0
    token: str = ""
    offset: int | None = None
    text_length: int | None = None


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """A page of a listing; ``next_token`` is empty on the last, ``total`` counts all pages.

    ``texts`` has one for each document, where they were asked for.
    """

    documents: tuple[Document, ...]
    next_token: str
    total: int
    texts: tuple[DocumentText, ...] = ()


@dataclass(frozen=True, slots=True)
class TextVector:
    """A text's vector (L2-normalised), its tokens, and how many of these, the first ones, the vector is made of."""

    vector: Sequence[float]
    tokens: int
    embedded_tokens: int


@dataclass(frozen=True, slots=True)
class Embedded:
    """What a model made of texts, in their order."""

    model: str
    vectors: tuple[TextVector, ...]


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
