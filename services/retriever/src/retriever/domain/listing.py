"""Pages of a listing of documents."""

from dataclasses import dataclass

from retriever.domain.document import Document


@dataclass(frozen=True, slots=True)
class DocumentText:
    """A part of a document's text, and whether there is more of it behind."""

    text: str
    is_truncated: bool


@dataclass(frozen=True, slots=True)
class TextRange:
    """Which part of a document's text.

    Attributes:
        length: Most code points.
        offset: Code points to pass over.
        first_page: Text of earlier pages is left out, and does not count as passed over; 0: none is.
        last_page: Text of later pages is left out; 0: none is.
    """

    length: int
    offset: int = 0
    first_page: int = 0
    last_page: int = 0

    def has_page(self, page: int) -> bool:
        """Return whether it takes text of a page."""
        return self.first_page <= page and (not self.last_page or page <= self.last_page)


@dataclass(frozen=True, slots=True)
class ListedChunk:
    """A chunk of a document as it is listed; the fields are those of ``retriever.proto``."""

    id: str
    number: int
    page: int
    headings: tuple[str, ...]
    text: str
    sourcepage: str


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which page of a listing.

    Attributes:
        size: Most documents; 0: the default.
        token: The ``next_token`` of the page before; empty for the first.
        offset: Documents to pass over; None where the token says where the page begins.
        text_length: Code points to give of each document's text; None: none.
    """

    size: int = 0
    token: str = ""
    offset: int | None = None
    text_length: int | None = None


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """A page of a listing; ``next_token`` is empty on the last, ``total`` counts all pages.

    ``texts`` has one for each document, where they were asked for.
    """

    documents: tuple[Document, ...]
    next_token: str
    total: int
    texts: tuple[DocumentText, ...] = ()
