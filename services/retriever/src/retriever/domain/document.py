"""Documents, their versions and their chunks."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from retriever.domain.language import LEGACY

EPOCH = datetime.fromtimestamp(0, UTC)
_ENCODED = {ord(character): f"%{ord(character):02X}" for character in "%#?[]\\"}
"""Characters with a special meaning in a URL or in a citation in brackets."""


@dataclass(frozen=True, slots=True)
class AccessControl:
    """The users and groups that may see a document. If both lists are empty, all users of the tenant may see it."""

    oids: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A record of the catalogue. The fields are those of ``document.proto``, and ``text_language``.

    ``language`` is the language that the document or the caller declares. ``text_language`` is the language in
    which text search analyses the document; it is empty in an index without languages (`domain.language`).
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
    def analysis_language(self) -> str:
        """The language whose tokenizer and stemmer apply to the document's chunks."""
        return self.text_language or LEGACY

    @property
    def version(self) -> "Version":
        """This generation of this document."""
        return Version(self.document_id, self.generation)

    def citation(self, page: int) -> str:
        """Return the citation of a page: ``file.pdf#page=3``. Page 0 means a format without pages.

        Front ends put citations into URLs unchanged. So if the document has an original to open, characters with a
        special meaning are percent-encoded: ``C#.pdf`` is cited as ``C%23.pdf``.
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

    ``text`` is shown and cited. ``vector`` (L2-normalised) and the terms are computed from ``indexed_text``. The
    first ``overlap`` code points of the text repeat the end of the previous chunk. Without an overlap,
    ``separator`` is the text between the previous chunk and this one. None means a blank line.
    """

    number: int
    text: str
    indexed_text: str
    page: int = 0
    headings: tuple[str, ...] = ()
    vector: Sequence[float] = ()
    overlap: int = 0
    separator: str | None = None
