"""RAGEngine's API other than chats: documents that are sent as text, lists, retrieval."""

import hashlib
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec
from servicekit import keys
from servicekit.errors import InvalidRequest, PayloadTooLarge

from gateway.dialects.json_fields import Fields, members, value
from gateway.dialects.openai.render import source_node
from gateway.dialects.ragengine.source_code import suffix_of_code
from gateway.domain import Passage, RetrievalMode, Tuning
from gateway.domain.text_documents import Equals, ListedDocument, TextDocument

MOST_DOCUMENTS = 10_000
"""The maximum number of documents of one request."""
MOST_NODES = 300
DEFAULT_NODES = 5
LONGEST_ID = 512
LONGEST_METADATA = 64 * 1024
"""The maximum number of bytes of JSON; the retriever's limit."""

_encode = msgspec.json.encode
_list = msgspec.json.Decoder(list[msgspec.Raw])
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LEAST_INTEGER, _MOST_INTEGER = -(2**63), 2**64 - 1


def index_name(name: str, field: str) -> str:
    """Return the name if it is a valid name of an index.

    Raises:
        InvalidRequest: It is invalid.
    """
    try:
        return keys.index_name(name)
    except InvalidRequest as error:
        raise InvalidRequest(error.message, field=field) from None


# --- documents ------------------------------------------------------------------------------------------------


class Indexing(NamedTuple):
    """The body of ``POST /index``; equal texts are one document.

    Attributes:
        index_name: The index's name.
        documents: The documents.
        places: For each text of the request the number of its document.
    """

    index_name: str
    documents: list[TextDocument]
    places: list[int]


def indexing(body: bytes) -> Indexing:
    """Parse the index and the documents of ``POST /index``.

    Raises:
        InvalidRequest: The request is invalid; the error names the field.
    """
    raw = members(body)
    name = Fields({"index_name": value(raw.get("index_name"), "index_name")}).text("index_name")
    if not name:
        raise InvalidRequest("index_name is missing.", field="index_name")
    made = Indexing(index_name(name, "index_name"), [], [])
    made.documents.extend(_documents(raw, _own_id_or_digest, made.places))
    return made


def updates(body: bytes) -> list[TextDocument]:
    """Parse the documents of an update, which have their ids.

    Raises:
        InvalidRequest: The request is invalid; the error names the field.
    """
    return _documents(members(body), _own_id)


def removals(body: bytes) -> list[str]:
    """Parse the ids of documents to delete, without duplicates.

    Raises:
        InvalidRequest: The request is invalid; the error names the field.
    """
    fields = Fields({"doc_ids": value(members(body).get("doc_ids"), "doc_ids")})
    ids = fields.items("doc_ids")
    if not ids:
        raise fields.wrong("doc_ids", "must be a list with at least one id")
    if len(ids) > MOST_DOCUMENTS:
        raise fields.wrong("doc_ids", f"must have at most {MOST_DOCUMENTS} ids")
    for number, each in enumerate(ids):
        if not isinstance(each, str) or not each:
            raise fields.wrong(f"doc_ids[{number}]", "must be a string that is not empty")
    return list(dict.fromkeys(ids))


def _documents(
    raw: dict[str, msgspec.Raw], name: Callable[[Fields, str], str], places: list[int] | None = None
) -> list[TextDocument]:
    """Parse documents; with ``places`` a document may be repeated, and its last metadata are used."""
    try:
        items = _list.decode(raw["documents"]) if "documents" in raw else []
    except (ValueError, RecursionError):
        raise InvalidRequest("documents must be a list of objects.", field="documents") from None
    if not items:
        raise InvalidRequest("documents must hold at least one document.", field="documents")
    if len(items) > MOST_DOCUMENTS:
        content = f"documents has {len(items)} documents; a request may have at most {MOST_DOCUMENTS}."
        raise PayloadTooLarge(content, field="documents")
    seen: dict[str, tuple[int, int]] = {}
    documents: list[TextDocument] = []
    for number, item in enumerate(items):
        document = _document(item, f"documents[{number}]", name)
        first, place = seen.setdefault(document.document_id, (number, len(documents)))
        if first == number:
            documents.append(document)
        elif places is not None and documents[place].sha256 == document.sha256:
            documents[place] = document
        else:
            path = f"documents[{number}].doc_id"
            raise InvalidRequest(f"{path}: documents[{first}] has the same id; one would replace it.", field=path)
        if places is not None:
            places.append(place)
    return documents


def _document(item: msgspec.Raw, path: str, name: Callable[[Fields, str], str]) -> TextDocument:
    try:
        raw = _object.decode(item)
    except (ValueError, RecursionError):
        raise InvalidRequest(f"{path} must be an object.", field=path) from None
    fields = Fields({key: value(raw.get(key), f"{path}.{key}") for key in ("text", "doc_id")}, path)
    text = fields.text("text")
    if not text or text.isspace():
        raise fields.wrong("text", "must be text that is not blank")
    if "\0" in text:
        raise fields.wrong("text", "must not hold NUL characters")
    digest = hashlib.sha256(text.encode()).hexdigest()
    path = fields.path("metadata")
    content = metadata(raw.get("metadata"), path)
    return TextDocument(name(fields, digest), text, content, digest, suffix_of_code(content, path))


def _own_id_or_digest(fields: Fields, digest: str) -> str:
    # RAGEngine's own client sends an empty id with every document.
    return _own_id(fields, digest) if fields.text("doc_id") else digest


def _own_id(fields: Fields, _digest: str) -> str:
    document_id = fields.text("doc_id")
    if not document_id.strip() or len(document_id) > LONGEST_ID or any(map(_breaks_lines, document_id)):
        raise fields.wrong("doc_id", f"must be an id of 1 to {LONGEST_ID} characters on one line")
    return document_id


def _breaks_lines(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")


def metadata(raw: msgspec.Raw | None, path: str) -> bytes:
    """Return metadata unchanged if they can be stored; null is equal to none.

    Raises:
        InvalidRequest: They are no JSON object, or have an invalid number or character.
    """
    content = value(raw, path)
    if raw is None or content is None:
        return b"{}"
    if not isinstance(content, dict):
        raise InvalidRequest(f"{path} must be an object.", field=path)
    json = bytes(raw)
    if len(json) > LONGEST_METADATA:
        raise PayloadTooLarge(f"{path} is longer than {LONGEST_METADATA} bytes.", field=path)
    for place, scalar in _scalars(content, path):
        if isinstance(scalar, str) and "\0" in scalar:
            raise InvalidRequest(f"{place} must not hold NUL characters.", field=path)
        if isinstance(scalar, int) and not _LEAST_INTEGER <= scalar <= _MOST_INTEGER:
            raise InvalidRequest(f"{place} is a number out of range.", field=path)
    return json


def _scalars(content: Any, path: str) -> Iterator[tuple[str, Any]]:
    # Not recursive, because the decoder accepts a thousand levels.
    todo = [(path, content)]
    while todo:
        place, item = todo.pop()
        if isinstance(item, dict):
            for key, each in item.items():
                yield f"a key of {place}", key
                todo.append((f"{place}.{key}", each))
        elif isinstance(item, list):
            todo += [(f"{place}[{number}]", each) for number, each in enumerate(item)]
        else:
            yield place, item


def document_json(document: TextDocument | ListedDocument) -> bytes:
    """Return a document in RAGEngine's format."""
    return _encode(
        {
            "doc_id": document.document_id,
            "text": document.text,
            "metadata": msgspec.Raw(document.metadata_json),
            "hash_value": document.sha256,
            "is_truncated": isinstance(document, ListedDocument) and document.is_truncated,
        }
    )


# --- conditions and retrieval ---------------------------------------------------------------------------------


_SEARCH = (
    *("index_name", "query", "max_node_count", "metadata_filter", "retrieval_mode", "semantic_ranker"),
    *("fusion", "dense_weight", "expand"),
)


@dataclass(frozen=True, slots=True)
class Search:
    """The request of ``POST /retrieve``."""

    index: str
    query: str
    top: int
    conditions: tuple[Equals, ...]
    mode: RetrievalMode = RetrievalMode.HYBRID
    semantic_ranker: bool = False
    fusion: str | None = None
    dense_weight: float | None = None
    expand: bool | None = None

    def tuned(self, usual: Tuning) -> Tuning:
        """Return a tuning with the search's own options in priority."""
        return replace(
            usual,
            fusion=usual.fusion if self.fusion is None else self.fusion,
            dense_weight=usual.dense_weight if self.dense_weight is None else self.dense_weight,
            expand=usual.expand if self.expand is None else self.expand,
        )


def search(body: bytes) -> Search:
    """Parse a search.

    Raises:
        InvalidRequest: The request is invalid; the error names the field.
    """
    raw = members(body)
    fields = Fields({name: value(raw[name], name) for name in _SEARCH if name in raw})
    name, query = fields.text("index_name"), fields.text("query")
    top = fields.integer("max_node_count", 1, MOST_NODES)
    if not name:
        raise fields.wrong("index_name", "is missing")
    if not query.strip():
        raise InvalidRequest("Query string cannot be empty.", field="query")
    required = conditions(fields.get("metadata_filter"), "metadata_filter")
    return Search(
        index_name(name, "index_name"),
        query,
        DEFAULT_NODES if top is None else top,
        required,
        RetrievalMode(fields.one_of("retrieval_mode", tuple(mode.value for mode in RetrievalMode)) or "hybrid"),
        fields.flag("semantic_ranker"),
        fields.one_of("fusion", ("scores", "ranks")) or None,
        fields.number("dense_weight", 0, 1),
        None if fields.get("expand") is None else fields.flag("expand"),
    )


def conditions(content: Any, path: str) -> tuple[Equals, ...]:
    """Return conditions that must all hold, from an object of keys and values; null is equal to none.

    Raises:
        InvalidRequest: The value is no such object.
    """
    if content is None:
        return ()
    if not isinstance(content, dict):
        raise InvalidRequest(f"{path} must be an object of keys and values.", field=path)
    return tuple(_equals(key, each, path) for key, each in content.items())


def conditions_of_text(text: str, path: str) -> tuple[Equals, ...]:
    """Return `conditions` from JSON in a query string; an empty text is equal to none.

    Raises:
        InvalidRequest: The value is no such object.
    """
    if not text.strip():
        return ()
    try:
        content = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        raise InvalidRequest(f"{path} must be a JSON object.", field=path) from None
    return conditions(content, path)


def _equals(key: str, scalar: Any, path: str) -> Equals:
    if not key.strip() or "\0" in key:
        raise InvalidRequest(f"{path} has a key that is blank or holds NUL characters.", field=path)
    field = f"{path}.{key}"
    if not isinstance(scalar, str | int | float | bool):
        raise InvalidRequest(f"{field} must be a string, a number or a boolean.", field=field)
    if isinstance(scalar, int) and not _LEAST_INTEGER <= scalar <= _MOST_INTEGER:
        raise InvalidRequest(f"{field} is a number out of range.", field=field)
    return Equals(key, _encode(scalar).decode())


def found_json(query: str, passages: tuple[Passage, ...]) -> bytes:
    """Return the answer of ``POST /retrieve``."""
    results = [source_node(passage) for passage in passages]
    return _encode({"query": query, "results": results, "count": len(results)})
