"""What is asked of the retriever, and what it finds. No wire type, no store's type."""

from dataclasses import dataclass
from enum import Enum

from retriever.domain.document import Document
from retriever.domain.filter import NO_FILTER, Filter
from retriever.domain.index import Fusion

DEFAULT_TOP = 10
"""Passages of a query that does not say how many (``RetrieveRequest.top``)."""
MAX_TOP = 1000


class Mode(Enum):
    """How passages are searched."""

    HYBRID = "hybrid"
    VECTORS = "vectors"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class Rerank:
    """That a reranker is to order what was found.

    Attributes:
        reranker: Its name; empty: the default one.
        minimum_score: Passages that it rates lower are left out.
    """

    reranker: str = ""
    minimum_score: float | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """What to look for, and where; the fields are those of ``RetrieveRequest``.

    Where ``fusion``, ``dense_weight`` and ``expand`` are None, `search.ranking_options` chooses them.
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
    """Which searches found a passage by themselves."""

    BOTH = "both"
    DENSE = "dense"
    SPARSE = "sparse"


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk that was found, with all that is known of it.

    Attributes:
        text: Its text, with that of its neighbours where they were asked for.
        first: Number of the first chunk whose text it has.
        last: Number of the last one.
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
    """A step of the work and its wall time."""

    name: str
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Passages, best first, and where the time went.

    Attributes:
        reranker: The reranker whose order it is; empty where there is none.
        not_reranked: Why a reranker that was to order them did not; empty where it did, or where none was wanted or
            configured.
    """

    passages: tuple[Passage, ...]
    steps: tuple[Step, ...]
    reranker: str = ""
    not_reranked: str = ""
