"""The types of indexes: their settings, their size, their rebuilds and their snapshots."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Settings of one index; None means the platform's setting, or in a change the present one.

    Attributes:
        embedding: The name of its embedding model.
        chunk_tokens: The maximum number of tokens of a chunk's text.
        chunk_overlap: The maximum number of tokens that a chunk repeats from the previous one.
        fusion: The default fusion of searches: ``scores`` or ``ranks``.
        dense_weight: The default weight of vectors in hybrid searches, 0 to 1.
        expand: Whether searches expand the query by default.
        language: The language of its texts for text search: ``auto``, an ISO 639-1 code, or ``legacy`` (of an
            earlier version).
        ocr: Whether new documents get text recognition of images: ``auto`` (if available) or ``off``.
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
    """An index, with counts of what the caller may see in it."""

    name: str
    settings: IndexSettings
    documents: int
    chunks: int


@dataclass(frozen=True, slots=True)
class IndexRebuild:
    """A rebuild; times are RFC 3339 in UTC, ``finished_at`` is empty while it runs.

    Attributes:
        state: ``running``, ``succeeded`` or ``failed``.
        settings: The settings of the index after the rebuild.
        documents_done: The number of documents with new vectors.
        documents_total: The number of all documents.
        error: Why it failed.
        started_at: When it was requested.
        finished_at: When it ended.
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
        path: Its path among the tenant's snapshots.
        index: The name of its index; empty if the snapshot is damaged.
        documents: The number of documents in it.
        chunks: The number of chunks in it.
        size_bytes: Its size on disk.
        created_at: RFC 3339.
    """

    path: str
    index: str
    documents: int
    chunks: int
    size_bytes: int
    created_at: str
