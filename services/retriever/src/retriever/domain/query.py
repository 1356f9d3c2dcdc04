"""Queries and their results."""

from dataclasses import dataclass
from enum import Enum

from retriever.domain.document import Document
from retriever.domain.filter import NO_FILTER, Filter
from retriever.domain.index import Fusion

DEFAULT_TOP = 10
"""Default of ``RetrieveRequest.top``."""
MAX_TOP = 1000


class Mode(Enum):
    """The searches that find passages: by meaning, by words, or both."""

    HYBRID = "hybrid"
    VECTORS = "vectors"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Rerank:
    """A request to rerank the passages.

    Attributes:
        reranker: Name of the reranker. Empty: the default one.
        minimum_score: Passages with a lower score are left out.
    """

    reranker: str = ""
    minimum_score: float | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """A search request. The fields are those of ``RetrieveRequest``.

    If ``fusion``, ``dense_weight`` or ``expand`` is None, `search.ranking_options` chooses it.
    """

    indexes: tuple[str, ...]
    text: str
    mode: Mode = Mode.HYBRID
    top: int = DEFAULT_TOP
    filter: Filter = NO_FILTER
    minimum_dense_score: float | None = None
    minimum_score: float | None = None
    skip_missing_scores: bool = False
    fusion: Fusion | None = None
    dense_weight: float | None = None
    expand: bool | None = None
    diversity: float = 0.0
    neighbours: int = 0
    rerank: Rerank | None = None
    captions: bool = False


class Source(Enum):
    """Which searches found a passage."""

    BOTH = "both"
    DENSE = "dense"
    SPARSE = "sparse"


@dataclass(frozen=True, slots=True)
class Passage:
    """A found chunk with its document and scores.

    Attributes:
        text: The text of the chunk, and of its neighbours if the query asks for them.
        first: Number of the first chunk in the text.
        last: Number of the last chunk in the text.
        captions: The sentences that answer the query best, in the order of the text.
    """

    id: str
    index: str
    document: Document
    number: int
    page: int
    headings: tuple[str, ...]
    text: str
    score: float
    dense_score: float | None
    sparse_score: float | None
    source: Source
    first: int
    last: int
    reranker_score: float | None = None
    captions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a search and its wall time."""

    name: str
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Retrieved:
    """The passages, best first, and the wall time of each step.

    Attributes:
        reranker: The reranker that ordered the passages; empty if none did.
        not_reranked: The reason why the requested reranker failed. Empty if it succeeded, or if no reranker was
            requested or configured.
    """

    passages: tuple[Passage, ...]
    steps: tuple[Step, ...]
    reranker: str = ""
    not_reranked: str = ""
