"""What is known of an index besides its documents: its settings, and how far a rebuild of it is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IndexSettings:
    """Settings of one index; None: those of the platform, or those that it has.

    Attributes:
        embedding: Name of the model that makes its vectors.
        chunk_tokens: Most tokens of a chunk's text.
        chunk_overlap: Most tokens that a chunk repeats of the one before.
    """

    embedding: str | None = None
    chunk_tokens: int | None = None
    chunk_overlap: int | None = None


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
