"""What the gateway speaks of where documents are concerned: uploads, their jobs, what was removed."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that shall be made findable."""

    index: str
    sourcefile: str
    content: bytes
    category: str = ""
    metadata_json: bytes = b"{}"
    oids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """How far the ingest of a file is."""

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


@dataclass(frozen=True, slots=True)
class Removal:
    """What became of the documents that should be removed.

    Attributes:
        removed: Ids of documents that were there, with all their chunks, and are not any more.
        not_found: Ids that the index does not have, or that the caller may not see.
    """

    removed: tuple[str, ...]
    not_found: tuple[str, ...]
