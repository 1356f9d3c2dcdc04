"""What is known of an index besides its documents: its settings, how much it holds, how far a rebuild of it is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Settings of one index; None: those of the platform, or those that it has.

    Attributes:
        embedding: Name of the model that makes its vectors.
        chunk_tokens: Most tokens of a chunk's text.
        chunk_overlap: Most tokens that a chunk repeats of the one before.
        fusion: How searches fuse that do not say: ``scores`` or ``ranks``.
        dense_weight: What meaning counts for in hybrid searches that do not say, 0 to 1.
        expand: Whether searches that do not say look for further words.
        language: Of its texts for text search: ``auto``, an ISO 639-1 code, or ``legacy`` (of an earlier version).
        ocr: Whether text in images is recognised for what is added: ``auto`` (where it can be) or ``off``.
    """

    embedding: str | None = None
    chunk_tokens: int | None = None
    chunk_overlap: int | None = None
    fusion: str | None = None
    dense_weight: float | None = None
    expand: bool | None = None
    language: str | None = None
    ocr: str | None = None


@dataclass(frozen=True, slots=True)
class IndexSummary:
    """An index, with the numbers of what the asker may see in it."""

    name: str
    settings: IndexSettings
    documents: int
    chunks: int


@dataclass(frozen=True, slots=True)
class IndexRebuild:
    """A rebuild; times are RFC 3339 in UTC, ``finished_at`` is empty until it is over.

    Attributes:
        state: ``running``, ``succeeded`` or ``failed``.
        settings: What the index has afterwards.
        documents_done: Documents that have their new vectors.
        documents_total: Documents in all.
        error: Why it failed.
        started_at: When it was asked for.
        finished_at: When it was over.
    """

    state: str
    settings: IndexSettings
    documents_done: int
    documents_total: int
    error: str
    started_at: str
    finished_at: str


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot of an index.

    Attributes:
        path: Names it among the tenant's.
        index: Which it is of; empty where it is damaged.
        documents: Number of documents in it.
        chunks: Number of passages in it.
        size_bytes: What it takes on the disk.
        created_at: RFC 3339.
    """

    path: str
    index: str
    documents: int
    chunks: int
    size_bytes: int
    created_at: str
