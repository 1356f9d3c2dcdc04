"""Pages of a listing of documents."""

from dataclasses import dataclass

from retriever.domain.document import Document


@dataclass(frozen=True, slots=True)
class DocumentText:
    """A part of a document's text, and whether more text follows."""

    text: str
    is_truncated: bool


@dataclass(frozen=True, slots=True)
class TextRange:
    """The requested part of a document's text.

    Attributes:
        length: Maximum number of code points.
        offset: Code points to skip.
        first_page: First page to include. Text of earlier pages does not count for ``offset``. 0: no limit.
        last_page: Last page to include. 0: no limit.
    """

    length: int
    offset: int = 0
    first_page: int = 0
    last_page: int = 0

    def has_page(self, page: int) -> bool:
        """Return whether the range includes a page."""
        return self.first_page <= page and (not self.last_page or page <= self.last_page)


@dataclass(frozen=True, slots=True)
class ListedChunk:
    """A chunk in a listing. The fields are those of ``retriever.proto``."""

    id: str
    number: int
    page: int
    headings: tuple[str, ...]
    text: str
    sourcepage: str


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for a page of a listing.

    Attributes:
        size: Maximum number of documents. 0: the default.
        token: The ``next_token`` of the previous page. Empty for the first page.
        offset: Documents to skip. None: ``token`` defines the start of the page.
        text_length: Code points to return of each document's text. None: no text.
    """

    size: int = 0
    token: str = ""
    offset: int | None = None
    text_length: int | None = None


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """A page of a listing.

    ``next_token`` is empty on the last page. ``total`` counts the documents of all pages. ``texts`` has one text
    for each document if the request asks for texts.
    """

    documents: tuple[Document, ...]
    next_token: str
    total: int
    texts: tuple[DocumentText, ...] = ()
