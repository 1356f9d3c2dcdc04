"""Jobs and documents, as the ingest service thinks of them."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
from servicekit.principal import Principal

_NEVER_DRAWN = "application/vnd.openxmlformats-officedocument."
"""Office documents: slides and sheets are pages, of which no pictures are made."""


MAILS = ("message/rfc822", "application/vnd.ms-outlook")
CONTAINERS = (*MAILS, "application/zip", "application/x-tar")
"""Documents that may have files within them, which are documents of their own."""
MAIL = "mail"
"""Metadata of a mail, made of its headers."""
OCR = "ocr"
"""Metadata of a document with text that was recognised in images: each page, and how sure its text is."""


class State(enum.Enum):
    """How far a job is."""

    QUEUED = "queued"
    PARSING = "parsing"
    INDEXING = "indexing"
    SUCCEEDED = "succeeded"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether the job is over."""
        return self in (State.SUCCEEDED, State.UNCHANGED, State.FAILED, State.CANCELLED)


@dataclass(frozen=True, slots=True)
class Document:
    """A document as the catalogue records it.

    Attributes:
        document_id: Names it within its index.
        sourcefile: The name people know it by; may hold anything.
        sha256: Of the original, lower-case hex.
        size_bytes: Length of the original.
        metadata_json: The caller's metadata, one JSON object; empty means ``{}``.
        oids: Users who may see it.
        groups: Groups that may see it; with both lists empty everybody in the tenant may.
        category: The caller's category.
        generation: Orders its versions; the newest wins.
        content_type: Media type, by content.
        language: BCP 47 tag, where the document names its language.
        page_count: 0 where the format has no pages.
        has_pictures: Pictures of its pages are kept; of a document that is to be read: wanted.
        original: Names its original in the object store; empty where there is none.
    """

    document_id: str
    sourcefile: str
    sha256: str
    size_bytes: int
    metadata_json: bytes = b""
    oids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    category: str = ""
    generation: int = 0
    content_type: str = ""
    language: str = ""
    page_count: int = 0
    has_pictures: bool = False
    original: str = ""

    def reads_as(self, other: "Document") -> bool:
        """Whether two versions have the same passages, which depend on content and name alone, and both or neither
        have pictures, unless there are no pages to make any of.
        """
        drawn = (self.page_count or other.page_count) and not self.content_type.startswith(_NEVER_DRAWN)
        pictured = not drawn or self.has_pictures == other.has_pictures
        return self.sha256 == other.sha256 and self.sourcefile == other.sourcefile and pictured

    def says_the_same_as(self, other: "Document") -> bool:
        """Whether two versions also have the same metadata and readers; a mail's headers are its content."""
        made = (MAIL, OCR) if self.content_type in MAILS else (OCR,)
        return (
            self.reads_as(other)
            and with_facts(self.metadata_json, {}, made) == with_facts(other.metadata_json, {}, made)
            and set(self.oids) == set(other.oids)
            and set(self.groups) == set(other.groups)
            and self.category == other.category
        )

    @property
    def may_have_members(self) -> bool:
        """Whether there may be files within it."""
        return self.content_type in CONTAINERS


def with_facts(metadata_json: bytes, facts: Mapping[str, object], without: Sequence[str] = ()) -> bytes:
    """Return metadata with some entries more, or fewer; entries of the same names give way."""
    if not facts and not without:
        return metadata_json or b"{}"
    entries: dict[str, object] = dict(msgspec.json.decode(metadata_json or b"{}", type=dict[str, msgspec.Raw]))
    for name in (*without, *facts):
        entries.pop(name, None)
    return msgspec.json.encode(entries | dict(facts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Something to be done to documents: a `FileJob`, a `TextsJob` or an `AccessJob`.

    Attributes:
        job_id: Names the job.
        principal: Who asked for it.
        index: Index to write to.
        object_name: What is to be read, in the object store; empty where nothing is.
        trace_id: Trace of the upload, 32 hex digits; empty where it had none.
    """

    job_id: str
    principal: Principal
    index: str
    object_name: str
    trace_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileJob(Job):
    """Make one file findable.

    Attributes:
        document: The document, with the generation that this job gives it; of one that is to be fetched without
            SHA-256 and size.
        url: Where it is to be fetched from; empty where its original is there.
        suffix: How a name would end that told its format, where its own does not.
    """

    document: Document
    url: str = ""
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Validators:
    """What tells whether a page of the web is still what it was (RFC 9110, 8.8); each may be empty."""

    etag: str = ""
    last_modified: str = ""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What is known of a page that was fetched.

    Attributes:
        suffix: How a name would end that told its format.
        validators: Its own.
    """

    suffix: str = ""
    validators: Validators = Validators()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextsJob(Job):
    """Make documents findable that came as text, many in one job. The object is the job's own.

    Attributes:
        generation: Of all of them.
        count: How many they are.
        size_bytes: Length of the object.
        sha256: Of the object, lower-case hex.
        existing_only: Those that the index does not have are left out.
    """

    generation: int
    count: int
    size_bytes: int
    sha256: str
    existing_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessJob(Job):
    """Change who may see a document that is there.

    Attributes:
        document: Its id, its name, its readers from then on, and the generation that this job gives it.
    """

    document: Document


@dataclass(frozen=True, slots=True)
class Text:
    """A document that came as text; its id is its name, too.

    Attributes:
        suffix: Of files in its programming language, where it is source code; else empty.
    """

    document_id: str
    text: str
    metadata_json: bytes = b""
    suffix: str = ""


class Outcome(enum.Enum):
    """What became of a text."""

    STORED = enum.auto()
    UNCHANGED = enum.auto()
    NOT_FOUND = enum.auto()
    SUPERSEDED = enum.auto()


@dataclass(frozen=True, slots=True)
class VectorSpace:
    """Which vectors an index has; those of two spaces say nothing of each other.

    Attributes:
        model: Name of the embedding model.
        dimension: Length of the vectors.
    """

    model: str
    dimension: int


@dataclass(frozen=True, slots=True)
class Traits:
    """What an index is, as far as documents are made for it.

    Attributes:
        space: Which vectors it has.
        chunk_tokens: Most tokens of a chunk's text; None: as the service is configured.
        chunk_overlap: Most tokens that a chunk repeats of the one before; None: likewise.
        ocr: Whether text in images is recognised.
    """

    space: VectorSpace
    chunk_tokens: int | None = None
    chunk_overlap: int | None = None
    ocr: bool = True


@dataclass(frozen=True, slots=True)
class Chunk:
    """A retrievable piece of a document.

    Attributes:
        number: Position within the document, from 0.
        text: What is shown and cited.
        indexed_text: What is searched: names and headings in front of the text.
        page: From 1; 0 where the format has no pages.
        headings: Headings above it, outermost first.
        overlap: Code points at the beginning of the text that repeat the end of the chunk before.
        separator: What stands between the chunk before and this one, where they do not overlap; None: a blank line.
    """

    number: int
    text: str
    indexed_text: str
    page: int
    headings: tuple[str, ...]
    overlap: int = 0
    separator: str | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How much of a job is done; a total of 0 is not known yet."""

    pages_done: int = 0
    pages_total: int = 0
    chunks_done: int = 0
    chunks_total: int = 0
    documents_done: int = 0
    documents_total: int = 0
    fetching: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a job failed, or waits: a reason of the platform's table, and words for people."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class JobWarning:
    """A part of a file that could not be read, although the rest was.

    Attributes:
        reason: A reason of the platform's table.
        message: Words for people.
        page: From 1; 0 where it is about no page.
        part: Name of the part, as of an attachment; empty where it is about none.
    """

    reason: str
    message: str
    page: int = 0
    part: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """A job as people see it.

    Attributes:
        state: How far it is.
        attempt: How many times a worker began it.
        progress: Of the present state.
        failure: Why it failed; while it is queued, why the attempt before did.
        created_at: When it was accepted.
        trace_id: Trace of the upload, as the gateway recorded it.
        outcomes: What became of each text, once the job has succeeded; none where it was about a file.
        committing: What it makes is about to be seen, or is seen: it can no longer be cancelled. Never taken back.
        counted: Attempts that count against the limit, the present one included.
        waiting_since: Since when it waits for something else that is away; None where it does not.
        warnings: What of the file could not be read, although the rest was; the first ones.
        warning_count: How many warnings there are.
        given_up: It failed, and is among the dead letters.
    """

    state: State
    attempt: int = 0
    progress: Progress = field(default_factory=Progress)
    failure: Failure | None = None
    created_at: datetime | None = None
    trace_id: str = ""
    outcomes: tuple[Outcome, ...] = ()
    committing: bool = False
    counted: int = 0
    waiting_since: datetime | None = None
    warnings: tuple[JobWarning, ...] = ()
    warning_count: int = 0
    given_up: bool = False
