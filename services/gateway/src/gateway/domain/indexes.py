"""The types of indexes: their settings, their size, their rebuilds and their snapshots."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """The settings of one index. None means the platform's setting, or the current setting in a change.

    Attributes:
        embedding: The name of the embedding model.
        chunk_tokens: The maximum number of tokens of a chunk's text.
        chunk_overlap: The maximum number of tokens that a chunk repeats from the previous chunk.
        fusion: The default fusion of searches: ``scores`` or ``ranks``.
        dense_weight: The default weight of vectors in hybrid searches, 0 to 1.
        expand: Whether searches expand the query by default.
        language: The language of the texts for text search: ``auto``, an ISO 639-1 code, or ``legacy`` (the text
            search of an earlier version).
        ocr: The text recognition in images of new documents: ``auto`` (if available) or ``off``.
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
    """An index, its settings, and the numbers of its documents and chunks that the caller may see."""

    name: str
    settings: IndexSettings
    documents: int
    chunks: int


@dataclass(frozen=True, slots=True)
class IndexRebuild:
    """A rebuild of an index. Times are RFC 3339 in UTC.

    Attributes:
        state: ``running``, ``succeeded`` or ``failed``.
        settings: The settings of the index after the rebuild.
        documents_done: The number of documents with new vectors.
        documents_total: The number of all documents.
        error: The reason for the failure.
        started_at: The time of the request.
        finished_at: The time of the end, or empty while the rebuild runs.
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
        path: The path below the tenant's snapshot directory.
        index: The name of the index, or empty if the snapshot is damaged.
        documents: The number of documents.
        chunks: The number of chunks.
        size_bytes: The size on disk.
        created_at: The time of creation, RFC 3339.
    """

    path: str
    index: str
    documents: int
    chunks: int
    size_bytes: int
    created_at: str
