"""The types of documents: uploads, their jobs, and removals."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.domain.text_documents import TextOutcome

ENDED = ("succeeded", "unchanged", "failed", "cancelled")
"""The final states of a job."""
_READING = 10
"""The percentage of a file's progress that parsing takes; embedding and storing take the rest."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A file to add to an index.

    Attributes:
        document_id: Its id in the index; empty: the id is derived from the file's name.
        pictures: Store pictures of its pages, if it has pages.
        url: The address to fetch it from; ``content`` is empty then.
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
    """A new access list of a document; if both lists are empty, all callers of the tenant may see it."""

    index: str
    document_id: str
    sourcefile: str
    oids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """An indexed document, as the catalogue records it.

    Attributes:
        sha256: The hash of its original.
        size_bytes: The length of the original.
        updated_at: When this version became visible, in seconds since 1970.
        original: The name of the original; empty if there is no original.
        generation: Orders the versions of the document.
        oids: Users who may see it.
        groups: Groups that may see it. If both lists are empty, all callers of the tenant may see it.
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
        number: Its position in the document, from 0.
        page: Its page, from 1; 0 if the format has no pages.
        headings: The headings above it, the outermost first.
        sourcepage: The name under which it is cited.
    """

    id: str
    number: int
    page: int
    headings: tuple[str, ...]
    text: str
    sourcepage: str


@dataclass(frozen=True, slots=True)
class PassagePage:
    """A document with some of its passages, in order; ``total`` counts all its passages."""

    stored: StoredDocument
    passages: tuple[StoredPassage, ...]
    total: int


@dataclass(frozen=True, slots=True)
class StoredPage:
    """Some documents, ordered by id; ``next_token`` gets the next page, and is empty on the last page."""

    documents: tuple[StoredDocument, ...]
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class TextRange:
    """A part of a document's text.

    Attributes:
        length: The maximum number of code points to return.
        offset: The number of code points to skip.
        first_page: Omit the text of earlier pages; it does not count towards ``offset``. 0: omit nothing.
        last_page: Omit the text of later pages; 0: omit nothing.
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
        text: The part.
        is_truncated: The document has more text after this part.
        pages: The number of its pages; 0 if the format has no pages.
        category: As the client sent it; may be empty.
        metadata_json: As the client sent it, a JSON object.
    """

    stored: StoredDocument
    text: str
    is_truncated: bool
    pages: int = 0
    category: str = ""
    metadata_json: bytes = b"{}"


@dataclass(frozen=True, slots=True)
class JobWarning:
    """A part of a file that could not be read, while the rest was read.

    ``page`` is 0 and ``part`` is empty if the warning concerns no particular page or part.
    """

    reason: str
    message: str
    page: int = 0
    part: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """The state of an ingest job for a file, or for several texts.

    A job for texts names no document and no file. When it has succeeded, ``outcomes`` holds the result of each
    text, in order.

    Attributes:
        error_reason: Why it failed; for a queued job, why the previous attempt failed.
        waiting_since: Since when it waits for a dependency that is not available, RFC 3339; empty if it does not
            wait.
        fetching: Its document is being fetched from its URL.
        warnings: The first parts of the file that could not be read, while the rest was read.
        warning_count: The number of all warnings.
        given_up: It failed, and can be sent again.
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
        """Return the state; ``waiting`` while a dependency is not available; ``fetching`` during a download."""
        if self.fetching and self.state == "parsing":
            return "fetching"
        return "waiting" if self.waiting_since and self.state == "queued" else self.state

    @property
    def percent(self) -> int:
        """Return the progress in percent."""
        if self.state in ENDED:
            return 100
        if self.progress.get("documents_total"):
            return int(99 * self._share("documents"))
        read = 1.0 if self.state == "indexing" else self._share("pages")
        return int(_READING * read + (99 - _READING) * self._share("chunks"))

    def _share(self, what: str) -> float:
        return self.progress.get(f"{what}_done", 0) / (self.progress.get(f"{what}_total") or math.inf)


@dataclass(frozen=True, slots=True)
class Removal:
    """The result of a request to remove documents.

    Attributes:
        removed: Ids of the documents that were removed with all their chunks.
        not_found: Ids that the index does not have, or that the caller may not see.
        pictured: Ids of the removed documents that have stored pictures of pages.
        originals: Names of the originals of the removed documents, if they have originals.
    """

    removed: tuple[str, ...]
    not_found: tuple[str, ...]
    pictured: tuple[str, ...] = ()
    originals: tuple[str, ...] = ()
