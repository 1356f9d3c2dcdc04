"""What an answer may rest on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a document that was found."""

    id: str
    index: str
    document_id: str
    sourcefile: str
    sourcepage: str
    text: str
    score: float
    page: int = 0
    chunk_number: int = 0
    headings: tuple[str, ...] = ()
    category: str = ""
    oids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    metadata_json: bytes = b"{}"
    dense_score: float | None = None
    sparse_score: float | None = None
    reranker_score: float | None = None
    found_by: str = "both"
    sha256: str = ""
    has_pictures: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """The picture of a page.

    Attributes:
        sourcepage: How the page is cited.
        url: The picture itself, as a data URL.
    """

    sourcepage: str
    url: str


@dataclass(frozen=True, slots=True)
class Selection:
    """What became of the passages that were found.

    Attributes:
        passages: Those that the answer rests on, best first.
        tokens: Tokens that they take.
        under_threshold: Number of those that are not similar enough to the question.
        too_large: Number of those for which there was no room.
    """

    passages: tuple[Passage, ...]
    tokens: int = 0
    under_threshold: int = 0
    too_large: int = 0
