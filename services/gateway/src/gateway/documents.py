"""What the gateway speaks of where documents are concerned: uploads, their jobs, what was removed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gateway.texts import TextOutcome


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that shall be made findable.

    Attributes:
        document_id: Its id in the index; empty: its name decides.
        pictures: Pictures of its pages are to be kept, where it has pages.
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


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document that can be found, as the catalogue knows it.

    Attributes:
        sha256: Names its original.
        size_bytes: Length of the original.
        updated_at: When this version became visible, in seconds since 1970.
    """

    document_id: str
    sourcefile: str
    content_type: str
    sha256: str
    size_bytes: int
    updated_at: float


@dataclass(frozen=True, slots=True)
class Job:
    """How far the ingest of a file is, or of texts: then neither document nor file is named, and once the job has
    succeeded the outcomes tell of each text in order.
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


@dataclass(frozen=True, slots=True)
class Removal:
    """What became of the documents that should be removed.

    Attributes:
        removed: Ids of documents that were there, with all their chunks, and are not any more.
        not_found: Ids that the index does not have, or that the caller may not see.
        pictured: Those of the removed ones of whose pages pictures are kept.
    """

    removed: tuple[str, ...]
    not_found: tuple[str, ...]
    pictured: tuple[str, ...] = ()
