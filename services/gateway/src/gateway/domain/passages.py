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
    captions: tuple[str, ...] = ()
    generation: int = 0
    has_original: bool = False

    @property
    def relevance(self) -> float:
        """What a reranker says of it, else the search."""
        return self.score if self.reranker_score is None else self.reranker_score

    @property
    def shown(self) -> str:
        """What a model gets of it: its best sentences where they were asked for, else the whole text.

        A caption that no longer stands in the text is none: a detector has changed what it says.
        """
        return " ".join(caption for caption in self.captions if caption in self.text) or self.text


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, best first.

    Attributes:
        passages: The passages.
        not_reranked: Why a reranker that was to order them did not; empty where it did, or where there is none.
        steps: What the search consisted of: names and milliseconds.
    """

    passages: tuple[Passage, ...] = ()
    not_reranked: str = ""
    steps: tuple[tuple[str, float], ...] = ()


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
        not_reranked: As of `Found`.
    """

    passages: tuple[Passage, ...]
    tokens: int = 0
    under_threshold: int = 0
    too_large: int = 0
    not_reranked: str = ""
