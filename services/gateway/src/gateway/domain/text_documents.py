"""What the gateway speaks of where indexes are managed: documents that come as text, and lists of what is there."""

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextDocument:
    """A document that shall be made findable as it is.

    Attributes:
        document_id: Names it within its index.
        text: Not blank.
        metadata_json: One JSON object, as it came.
        sha256: Of the text in UTF-8, lower-case hex.
        suffix: Of files in its programming language, where it is source code; else empty.
    """

    document_id: str
    text: str
    metadata_json: bytes
    sha256: str
    suffix: str = ""


class TextOutcome(enum.Enum):
    """What became of a document that came as text."""

    STORED = enum.auto()
    UNCHANGED = enum.auto()
    NOT_FOUND = enum.auto()
    SUPERSEDED = enum.auto()


@dataclass(frozen=True, slots=True)
class ListedDocument:
    """A document of an index with the beginning of its text.

    Attributes:
        sha256: Of what it was made from: its text, or the file that it came as.
        is_truncated: Whether it has more text.
    """

    document_id: str
    text: str
    metadata_json: bytes
    sha256: str
    is_truncated: bool


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """Some documents, and how many there are in all."""

    documents: tuple[ListedDocument, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Equals:
    """A condition: the metadata have this value under this key.

    Attributes:
        key: With dots where it is nested.
        json_value: A JSON scalar.
    """

    key: str
    json_value: str
