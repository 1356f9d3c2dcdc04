"""Documents, their versions and their chunks."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from retriever.domain.language import LEGACY

EPOCH = datetime.fromtimestamp(0, UTC)
_ENCODED = {ord(sign): f"%{ord(sign):02X}" for sign in "%#?[]\\"}
"""What ends a path, a name in brackets, or begins something else in a URL."""


@dataclass(frozen=True, slots=True)
class AccessControl:
    """Who may see a document; both lists empty: everybody in its tenant."""

    oids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A record of the catalogue; the fields are those of ``document.proto``.

    ``language`` is what the document, or who sent it, says; ``text_language`` is the one that text search has it
    in, empty in an index that knows no languages (`domain.language`).
    """

    document_id: str
    sourcefile: str = ""
    content_type: str = ""
    sha256: str = ""
    size_bytes: int = 0
    metadata_json: bytes = b""
    access: AccessControl = AccessControl()
    category: str = ""
    language: str = ""
    generation: int = 0
    page_count: int = 0
    chunk_count: int = 0
    updated_at: datetime = EPOCH
    has_pictures: bool = False
    original: str = ""
    text_language: str = ""

    @property
    def analysis(self) -> str:
        """The language that the words of its chunks are cut and stemmed by."""
        return self.text_language or LEGACY

    @property
    def version(self) -> "Version":
        """This generation of this document."""
        return Version(self.document_id, self.generation)

    def cited_as(self, page: int) -> str:
        """How a page of it is cited: ``file.pdf#page=3``; page 0 stands for a format without pages.

        Front ends put what is cited into a URL as it is. So characters that would end the name there are encoded in
        the names of documents whose originals can be opened: ``C#.pdf`` is cited as ``C%23.pdf``.
        """
        name = self.sourcefile or self.document_id
        if self.original:
            name = name.translate(_ENCODED)
        return f"{name}#page={page}" if page else name


class Version(NamedTuple):
    """One generation of one document."""

    document_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """One retrievable piece of a document.

    ``text`` is shown and cited, ``indexed_text`` is what ``vector`` (L2-normalised) and the words are made of. The
    first ``overlap`` code points of the text repeat the chunk before; where none do, ``separator`` stands between
    the two in the document, None for a blank line.
    """

    number: int
    text: str
    indexed_text: str
    page: int = 0
    headings: tuple[str, ...] = ()
    vector: Sequence[float] = ()
    overlap: int = 0
    separator: str | None = None
