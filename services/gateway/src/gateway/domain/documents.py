"""What the gateway speaks of where documents are concerned: uploads, their jobs, what was removed."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.domain.text_documents import TextOutcome

ENDED = ("succeeded", "unchanged", "failed", "cancelled")
"""States in which a job is over."""
_READING = 10
"""What reading takes of a file's percents; embedding and storing take the rest."""


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that shall be made findable.

    Attributes:
        document_id: Its id in the index; empty: its name decides.
        pictures: Pictures of its pages are to be kept, where it has pages.
        url: Where it is to be fetched from; then there is no content yet.
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
    """Who may see a document from then on; with both lists empty all callers of the tenant may."""

    index: str
    document_id: str
    sourcefile: str
    oids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document that can be found, as the catalogue knows it.

    Attributes:
        sha256: Names its original.
        size_bytes: Length of the original.
        updated_at: When this version became visible, in seconds since 1970.
        original: Names the original; empty where there is none.
        generation: Orders the versions of the document.
        oids: Users who may see it.
        groups: Groups that may see it; with both lists empty all callers of the tenant may.
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
    """A passage of a document as it is kept.

    Attributes:
        number: Its place in the document, from 0.
        page: From 1; 0 where the format has no pages.
        headings: Those above it, the outermost first.
        sourcepage: How it is cited.
    """

    id: str
    number: int
    page: int
    headings: tuple[str, ...]
    text: str
    sourcepage: str


@dataclass(frozen=True, slots=True)
class PassagePage:
    """A document with some of its passages, in order; ``total`` counts all of them."""

    stored: StoredDocument
    passages: tuple[StoredPassage, ...]
    total: int


@dataclass(frozen=True, slots=True)
class StoredPage:
    """Some documents, ordered by id; ``next_token`` gets the page after them, and is empty where there is none."""

    documents: tuple[StoredDocument, ...]
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class TextRange:
    """Which part of a document's text.

    Attributes:
        length: Most code points.
        offset: Code points to pass over.
        first_page: Text of earlier pages is left out, and does not count as passed over; 0: none is.
        last_page: Text of later pages is left out; 0: none is.
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
        is_truncated: There is more of it behind this.
        pages: Number of its pages; 0 where the format has none.
        category: As it came; may be empty.
        metadata_json: As it came, one object.
    """

    stored: StoredDocument
    text: str
    is_truncated: bool
    pages: int = 0
    category: str = ""
    metadata_json: bytes = b"{}"


@dataclass(frozen=True, slots=True)
class JobWarning:
    """A part of a file that could not be read, although the rest was; of no page: 0, of no part: empty."""

    reason: str
    message: str
    page: int = 0
    part: str = ""


@dataclass(frozen=True, slots=True)
class Job:
    """How far the ingest of a file is, or of texts: then neither document nor file is named, and once the job has
    succeeded the outcomes tell of each text in order.

    Attributes:
        error_reason: Why it failed; of one that is queued, why the attempt before ended.
        waiting_since: Since when it waits for something else that is away, RFC 3339; empty where it does not.
        fetching: Its document is being fetched from its URL.
        warnings: What of the file could not be read, although the rest was; the first ones.
        warning_count: How many warnings there are.
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
        """What is being done: the state, or ``waiting`` while something that is needed is away, or ``fetching``."""
        if self.fetching and self.state == "parsing":
            return "fetching"
        return "waiting" if self.waiting_since and self.state == "queued" else self.state

    @property
    def percent(self) -> int:
        """How much of it is done."""
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
    """What became of the documents that should be removed.

    Attributes:
        removed: Ids of documents that were there, with all their chunks, and are not any more.
        not_found: Ids that the index does not have, or that the caller may not see.
        pictured: Those of the removed ones of whose pages pictures are kept.
        originals: Names of the originals of the removed ones, as far as they have any.
    """

    removed: tuple[str, ...]
    not_found: tuple[str, ...]
    pictured: tuple[str, ...] = ()
    originals: tuple[str, ...] = ()
