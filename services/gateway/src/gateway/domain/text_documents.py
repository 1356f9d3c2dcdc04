"""The types of index management: documents that clients send as text, and lists of documents."""

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextDocument:
    """A document that the client sends as text.

    Attributes:
        document_id: The id in the index.
        text: The text, which is not blank.
        metadata_json: The metadata from the client, a JSON object.
        sha256: The hash of the text in UTF-8, lower-case hex.
        suffix: The file suffix of the programming language of source code, or empty for other texts.
    """

    document_id: str
    text: str
    metadata_json: bytes
    sha256: str
    suffix: str = ""


class TextOutcome(enum.Enum):
    """The result for a document that a client sent as text.

    Attributes:
        STORED: The document is new or has changed.
        UNCHANGED: The index already contains the same document.
        NOT_FOUND: The index does not contain the document, and the request only updates documents.
        SUPERSEDED: The index contains a newer version of the document.
    """

    STORED = enum.auto()
    UNCHANGED = enum.auto()
    NOT_FOUND = enum.auto()
    SUPERSEDED = enum.auto()


@dataclass(frozen=True, slots=True)
class ListedDocument:
    """A document of an index with the beginning of its text.

    Attributes:
        text: The beginning of the text.
        metadata_json: The metadata from the client, a JSON object.
        sha256: The hash of the document's text, or of its file.
        is_truncated: Whether the document has more text.
    """

    document_id: str
    text: str
    metadata_json: bytes
    sha256: str
    is_truncated: bool


@dataclass(frozen=True, slots=True)
class DocumentPage:
    """Some documents, and the number of all documents."""

    documents: tuple[ListedDocument, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Equals:
    """A condition: the metadata contain this value under this key.

    Attributes:
        key: The key, with dots between nested keys.
        json_value: The value, a JSON scalar.
    """

    key: str
    json_value: str
