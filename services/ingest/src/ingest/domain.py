"""The domain types of the ingest service: jobs and documents."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
from servicekit.principal import Principal

_PDF = "application/pdf"
"""The content type of the only documents whose pages have pictures."""
MAIL_TYPES = ("message/rfc822", "application/vnd.ms-outlook")
CONTAINER_TYPES = (*MAIL_TYPES, "application/zip", "application/x-tar")
"""Content types of documents that may contain files. These files become documents too."""
MAIL_ENTRY = "mail"
"""The metadata entry with the headers of a mail."""
OCR_ENTRY = "ocr"
"""The metadata entry with the pages whose text was recognised in images, and the confidence of each."""


class State(enum.Enum):
    """The state of a job."""

    QUEUED = "queued"
    PARSING = "parsing"
    INDEXING = "indexing"
    SUCCEEDED = "succeeded"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether the job has ended."""
        return self in (State.SUCCEEDED, State.UNCHANGED, State.FAILED, State.CANCELLED)


@dataclass(frozen=True, slots=True)
class Document:
    """A document of the catalogue.

    Attributes:
        document_id: The id within the index.
        sourcefile: The name for users; may contain any characters.
        sha256: SHA-256 of the original, lower-case hex.
        size_bytes: Length of the original.
        metadata_json: The caller's metadata as a JSON object; empty means ``{}``.
        oids: Users who may see it.
        groups: Groups that may see it. With both lists empty, the whole tenant may see it.
        category: The caller's category.
        generation: Version number. A version with a higher generation replaces a version with a lower one.
        content_type: Media type, detected from the content.
        language: BCP 47 tag; empty if the document does not declare its language.
        page_count: 0 if the format has no pages.
        has_pictures: Whether pictures of its pages are stored; in a job, whether they are requested.
        original: The name of its original in the object store; empty without an original.
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

    def has_same_content_as(self, other: "Document") -> bool:
        """Return whether two versions have the same passages and pictures.

        The passages depend only on the content and the name. Pictures are compared only if this document is a PDF,
        because other documents cannot have any.
        """
        same_pictures = self.content_type != _PDF or self.has_pictures == other.has_pictures
        return self.sha256 == other.sha256 and self.sourcefile == other.sourcefile and same_pictures

    def is_unchanged_from(self, other: "Document") -> bool:
        """Return whether two versions have the same passages, pictures, metadata and readers.

        Metadata that the platform derives from the content, such as a mail's headers, is not compared.
        """
        derived = (MAIL_ENTRY, OCR_ENTRY) if self.content_type in MAIL_TYPES else (OCR_ENTRY,)
        return (
            self.has_same_content_as(other)
            and with_facts(self.metadata_json, {}, derived) == with_facts(other.metadata_json, {}, derived)
            and set(self.oids) == set(other.oids)
            and set(self.groups) == set(other.groups)
            and self.category == other.category
        )

    @property
    def may_have_members(self) -> bool:
        """Whether the document may contain files."""
        return self.content_type in CONTAINER_TYPES


def with_facts(metadata_json: bytes, facts: Mapping[str, object], without: Sequence[str] = ()) -> bytes:
    """Return the metadata with some entries added or removed. An added entry replaces an entry of the same name."""
    if not facts and not without:
        return metadata_json or b"{}"
    entries: dict[str, object] = dict(msgspec.json.decode(metadata_json or b"{}", type=dict[str, msgspec.Raw]))
    for name in (*without, *facts):
        entries.pop(name, None)
    return msgspec.json.encode(entries | dict(facts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The base class of jobs: a `FileJob`, a `TextsJob` or an `AccessJob`.

    Attributes:
        job_id: Identifies the job.
        principal: The caller who submitted it.
        index: The index to write to.
        object_name: The name of the job's object in the object store; empty for a job without an object.
        trace_id: Trace of the upload, 32 hex digits; empty without a trace.
    """

    job_id: str
    principal: Principal
    index: str
    object_name: str
    trace_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileJob(Job):
    """A job that makes one file searchable.

    Attributes:
        document: The document, with the job's generation. SHA-256 and size are missing if it must be fetched.
        url: The URL to fetch it from; empty if the original is in the store.
        suffix: A file name suffix that shows the format, if the document's name does not.
        content: The bytes of a short original; empty if only the store has them.
    """

    document: Document
    url: str = ""
    suffix: str = ""
    content: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Validators:
    """The validators of a web page, which show whether it has changed (RFC 9110, 8.8); each may be empty."""

    etag: str = ""
    last_modified: str = ""


@dataclass(frozen=True, slots=True)
class DownloadInfo:
    """The facts that a web server reported about a fetched document.

    Attributes:
        suffix: A file name suffix that shows the format.
        validators: The validators of the response.
    """

    suffix: str = ""
    validators: Validators = Validators()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextsJob(Job):
    """A job that makes many texts searchable as documents. The object contains only the texts of this job.

    Attributes:
        generation: The generation of all documents.
        count: The number of documents.
        size_bytes: Length of the object.
        sha256: SHA-256 of the object, lower-case hex.
        existing_only: Skip texts whose documents the index does not contain.
    """

    generation: int
    count: int
    size_bytes: int
    sha256: str
    existing_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessJob(Job):
    """A job that changes the access list of an existing document.

    Attributes:
        document: The id, the name and the new readers of the document, and the generation of this job.
    """

    document: Document


@dataclass(frozen=True, slots=True)
class Text:
    """A document that was submitted as text. The id is also the name.

    Attributes:
        suffix: For source code, the file name suffix of its programming language; otherwise empty.
    """

    document_id: str
    text: str
    metadata_json: bytes = b""
    suffix: str = ""


class Outcome(enum.Enum):
    """The result for one text."""

    STORED = enum.auto()
    UNCHANGED = enum.auto()
    NOT_FOUND = enum.auto()
    SUPERSEDED = enum.auto()


@dataclass(frozen=True, slots=True)
class VectorSpace:
    """The vectors of an index; vectors of different spaces cannot be compared.

    Attributes:
        model: Name of the embedding model.
        dimension: Length of the vectors.
    """

    model: str
    dimension: int


@dataclass(frozen=True, slots=True)
class IndexProperties:
    """The properties of an index that matter for its documents.

    Attributes:
        space: The vectors of the index.
        chunk_tokens: Maximum number of tokens of a chunk's text; None: the service's setting.
        chunk_overlap: Maximum overlap with the previous chunk, in tokens; None: the service's setting.
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
        text: The text to show and cite.
        indexed_text: The text to search: the text with names and headings before it.
        page: Number of the page, from 1; 0 if the format has no pages.
        headings: Headings above the chunk, outermost first.
        overlap: Code points at the beginning of the text that repeat the end of the previous chunk.
        separator: The text between the previous chunk and this one, if they do not overlap; None: a blank line.
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
    """The progress of a job. A total of 0 means that the total is not known yet."""

    pages_done: int = 0
    pages_total: int = 0
    chunks_done: int = 0
    chunks_total: int = 0
    documents_done: int = 0
    documents_total: int = 0
    fetching: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a job failed or waits: a reason in `servicekit.errors.TABLE`, and a message for users."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class JobWarning:
    """A part of a file that could not be read, although the rest of the file was read.

    Attributes:
        reason: A reason in `servicekit.errors.TABLE`.
        message: The text for users.
        page: Number of the page, from 1; 0 if the warning is not about a page.
        part: Name of the part, for example an attachment; empty if the warning is not about a part.
    """

    reason: str
    message: str
    page: int = 0
    part: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """The public status of a job.

    Attributes:
        state: The state.
        attempt: The number of times that a worker has started the job.
        progress: The progress in this state.
        failure: The failure; while the job is queued, the failure of the previous attempt.
        created_at: Time at which the gateway accepted the job.
        trace_id: Trace of the upload, as the gateway recorded it.
        outcomes: The result for each text, once the job has succeeded; empty for a file.
        committing: Whether the job can no longer be cancelled, because its results may be visible. Never reset.
        counted_attempts: Attempts that count against the limit, including this one.
        waiting_since: Start of the wait for an unavailable dependency or for earlier jobs; None if the job does not
            wait.
        warnings: The first warnings about parts of the file that could not be read.
        warning_count: The number of all warnings.
        given_up: Whether the worker gave the job up, so that it is in the dead letters.
    """

    state: State
    attempt: int = 0
    progress: Progress = field(default_factory=Progress)
    failure: Failure | None = None
    created_at: datetime | None = None
    trace_id: str = ""
    outcomes: tuple[Outcome, ...] = ()
    committing: bool = False
    counted_attempts: int = 0
    waiting_since: datetime | None = None
    warnings: tuple[JobWarning, ...] = ()
    warning_count: int = 0
    given_up: bool = False
