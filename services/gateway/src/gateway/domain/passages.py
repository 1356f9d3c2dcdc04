"""The types of passages, the sources of answers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of a document that a search found.

    Attributes:
        sourcefile: The name of the document's file.
        sourcepage: The name for citations of the passage.
        score: The score that determines the order. A greater score is better.
        page: The number of the page, from 1, or 0 if the format has no pages.
        chunk_number: The position in the document, from 0.
        headings: The headings above the passage, the outermost first.
        oids: Users who may see the document.
        groups: Groups that may see the document.
        metadata_json: The metadata from the client, a JSON object.
        dense_score: The cosine similarity to the query, or None if it is not known.
        sparse_score: The BM25 score, or None if it is not known.
        reranker_score: The score of the reranker, or None if no reranker scored the passage.
        found_by: The search that found the passage: ``both``, ``dense_only`` or ``sparse_only``.
        sha256: The SHA-256 of the document's original, in lower-case hex digits.
        has_pictures: Whether pictures of the document's pages are stored.
        captions: The best sentences of the passage, if the request selects captions.
        generation: The number that orders the versions of the document.
        has_original: Whether the original of the document is stored.
    """

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
        """Return the reranker's score, or the search's score if no reranker scored the passage."""
        return self.score if self.reranker_score is None else self.reranker_score

    @property
    def prompt_text(self) -> str:
        """Return the text for the model: the captions if the request selects them, otherwise the whole text.

        The result omits a caption that the text does not contain any more, because a detector has redacted it.
        """
        if not self.captions:
            return self.text
        return " ".join(caption for caption in self.captions if caption in self.text) or self.text


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The results of a search, best first.

    Attributes:
        passages: The passages.
        not_reranked: The reason why the reranker failed, or empty.
        steps: The steps of the search: names and milliseconds.
    """

    passages: tuple[Passage, ...] = ()
    not_reranked: str = ""
    steps: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Picture:
    """The picture of a page.

    Attributes:
        sourcepage: The name for citations of the page.
        url: The picture as a data URL.
    """

    sourcepage: str
    url: str


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected passages of a search.

    Attributes:
        passages: The selected passages, best first.
        tokens: The number of tokens of the selected passages.
        under_threshold: The number of passages whose similarity is below the threshold.
        too_large: The number of passages that do not fit.
        not_reranked: As in `SearchResults`.
    """

    passages: tuple[Passage, ...]
    tokens: int = 0
    under_threshold: int = 0
    too_large: int = 0
    not_reranked: str = ""
