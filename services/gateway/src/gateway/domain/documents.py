"""The types of documents: uploads, their jobs, and removals."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.domain.text_documents import TextOutcome

ENDED = ("succeeded", "unchanged", "failed", "cancelled")
"""The final states of a job."""
_PARSING_PERCENT = 10
"""The percentage that complete parsing adds to a file's progress. Embedding and storing add the rest."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A file to add to an index.

    Attributes:
        content: The bytes of the file.
        metadata_json: The metadata from the client, a JSON object.
        oids: Users who may see the document.
        groups: Groups that may see the document. If ``oids`` and ``groups`` are empty, all callers of the tenant
            may see it.
        document_id: The id of the document in the index. If it is empty, the id is derived from ``sourcefile``.
        pictures: Whether to store pictures of the document's pages, if it has pages.
        url: The address from which ingest fetches the file. In this case ``content`` is empty.
    """

    index: str
    sourcefile: str
    content: bytes
    category: str = ""
    metadata_json: bytes = b"{}"
    oids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    document_id: str = ""
    pictures: bool = False
    url: str = ""


@dataclass(frozen=True, slots=True)
class AccessChange:
    """A new access list of a document.

    ``oids`` are users who may see the document, and ``groups`` are groups that may see it. If both are empty, all
    callers of the tenant may see it.
    """

    index: str
    document_id: str
    sourcefile: str
    oids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """An indexed document, as the catalogue records it.

    Attributes:
        content_type: The media type.
        sha256: The SHA-256 of the original, or of the text of a text document, in lower-case hex digits.
        size_bytes: The length of the original or the text, in bytes.
        updated_at: The time at which this version became visible, in seconds since 1970.
        original: The name of the original, or empty without an original.
        generation: The number that orders the versions of the document.
        oids: Users who may see the document.
        groups: Groups that may see the document. If ``oids`` and ``groups`` are empty, all callers of the tenant
            may see it.
    """

    document_id: str
    sourcefile: str
    content_type: str
    sha256: str
    size_bytes: int
    updated_at: float
    original: str = ""
    generation: int = 0
    oids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredPassage:
    """A stored passage of a document.

    Attributes:
        number: The position in the document, from 0.
        page: The number of the page, from 1, or 0 if the format has no pages.
        headings: The headings above the passage, the outermost first.
        sourcepage: The name for citations of the passage.
    """

    id: str
    number: int
    page: int
    headings: tuple[str, ...]
    text: str
    sourcepage: str


@dataclass(frozen=True, slots=True)
class PassagePage:
    """A document with some of its passages, in order. ``total`` is the number of all its passages."""

    stored: StoredDocument
    passages: tuple[StoredPassage, ...]
    total: int


@dataclass(frozen=True, slots=True)
class StoredPage:
    """Some documents, ordered by id. ``next_token`` requests the next page and is empty on the last page."""

    documents: tuple[StoredDocument, ...]
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class TextRange:
    """A part of a document's text.

    Attributes:
        length: The maximum number of code points to return.
        offset: The number of code points to skip.
        first_page: Omit the text of earlier pages, which does not count towards ``offset``. 0 omits nothing.
        last_page: Omit the text of later pages. 0 omits nothing.
    """

    length: int
    offset: int = 0
    first_page: int = 0
    last_page: int = 0


@dataclass(frozen=True, slots=True)
class ReadDocument:
    """A document with a part of its text.

    Attributes:
        stored: The document.
        text: The part of the text.
        is_truncated: Whether the document has more text after this part.
        pages: The number of the document's pages, or 0 if the format has no pages.
        category: The category from the client; may be empty.
        metadata_json: The metadata from the client, a JSON object.
    """

    stored: StoredDocument
    text: str
    is_truncated: bool
    pages: int = 0
    category: str = ""
    metadata_json: bytes = b"{}"


@dataclass(frozen=True, slots=True)
class JobWarning:
    """A part of a file that the parser could not read. The parser has read the other parts.

    ``page`` is 0 and ``part`` is empty if the warning concerns no particular page or part.
    """

    reason: str
    message: str
    page: int = 0
    part: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """The state of an ingest job for a file, or for several texts.

    A job for texts names no document and no file. After its success, ``outcomes`` contains the result of each text,
    in order.

    Attributes:
        state: ``queued``, ``parsing``, ``indexing``, or one of `ENDED`.
        created_at: The time of creation, RFC 3339.
        updated_at: The time of the last change, RFC 3339.
        attempt: The number of attempts.
        progress: The numbers of completed and of all units: ``pages_done``, ``pages_total``, and the same for
            ``chunks`` and ``documents``.
        error_reason: The reason for the failure. For a queued job, the reason why the previous attempt failed.
        waiting_since: The time since which the job waits for an unavailable dependency or for earlier jobs, RFC
            3339. Empty if the job does not wait.
        fetching: Whether ingest is fetching the document from its URL.
        warnings: Warnings about the first parts of the file that the parser could not read.
        warning_count: The number of all warnings.
        given_up: Whether the job failed and is a dead letter, which can be sent again.
    """

    id: str
    state: str
    index: str
    document_id: str
    sourcefile: str
    created_at: str
    updated_at: str
    trace_id: str
    attempt: int = 0
    progress: Mapping[str, int] = field(default_factory=dict)
    error_reason: str = ""
    error_message: str = ""
    outcomes: tuple[TextOutcome, ...] = ()
    waiting_since: str = ""
    fetching: bool = False
    warnings: tuple[JobWarning, ...] = ()
    warning_count: int = 0
    given_up: bool = False

    @property
    def stage(self) -> str:
        """Return the state, ``waiting`` for a queued job that waits, or ``fetching`` during a download."""
        if self.fetching and self.state == "parsing":
            return "fetching"
        return "waiting" if self.waiting_since and self.state == "queued" else self.state

    @property
    def percent(self) -> int:
        """Return the progress in percent. 100 means that the job has ended."""
        if self.state in ENDED:
            return 100
        if self.progress.get("documents_total"):
            return int(99 * self._share("documents"))
        parsed = 1.0 if self.state == "indexing" else self._share("pages")
        return int(_PARSING_PERCENT * parsed + (99 - _PARSING_PERCENT) * self._share("chunks"))

    def _share(self, unit: str) -> float:
        return self.progress.get(f"{unit}_done", 0) / (self.progress.get(f"{unit}_total") or math.inf)


@dataclass(frozen=True, slots=True)
class Removal:
    """The result of a request to remove documents.

    Attributes:
        removed: Ids of the removed documents.
        not_found: Ids that the index does not contain, or that the caller may not see.
        pictured: Ids of the removed documents whose pages have stored pictures.
        originals: Names of the removed documents' originals.
    """

    removed: tuple[str, ...]
    not_found: tuple[str, ...]
    pictured: tuple[str, ...] = ()
    originals: tuple[str, ...] = ()
