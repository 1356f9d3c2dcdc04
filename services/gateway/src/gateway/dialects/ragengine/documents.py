"""Parses requests and renders responses of RAGEngine's API for text documents, lists of documents and retrieval."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec
from servicekit import keys
from servicekit.characters import has_controls
from servicekit.errors import InvalidRequest, PayloadTooLarge

from gateway.dialects.json_fields import Fields, members, pick, value
from gateway.dialects.openai.render import source_node
from gateway.dialects.ragengine.source_code import suffix_of_code
from gateway.dialects.turn_settings import MODES
from gateway.domain import Passage, RetrievalMode, Tuning
from gateway.domain.text_documents import Equals, ListedDocument, TextDocument

MAX_DOCUMENTS = 10_000
"""The maximum number of documents of one request."""
MAX_NODES = 300
"""The maximum number of results of one search."""
DEFAULT_NODES = 5
"""The number of results if a search does not set it."""
MAX_ID_LENGTH = 512
"""The maximum length of a document's id in characters."""
MAX_METADATA_BYTES = 64 * 1024
"""The maximum length of the metadata's JSON in bytes. The retriever has the same limit."""

_encode = msgspec.json.encode
_list = msgspec.json.Decoder(list[msgspec.Raw])
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**64 - 1


# --- documents ------------------------------------------------------------------------------------------------


class IndexRequest(NamedTuple):
    """The body of ``POST /index``. Documents with equal texts become one if they have the same id or no ids.

    Attributes:
        index_name: The name of the index.
        documents: The documents.
        positions: For each text of the request, the position of its document in ``documents``.
    """

    index_name: str
    documents: list[TextDocument]
    positions: list[int]


def index_request(body: bytes) -> IndexRequest:
    """Parse the index and the documents of ``POST /index``.

    Raises:
        InvalidRequest: The request is invalid; the error names the field.
    """
    raw = members(body)
    name = pick(raw, ("index_name",)).text("index_name")
    if not name:
        raise InvalidRequest("index_name is missing. Set it to the name of an index.", field="index_name")
    request = IndexRequest(keys.index_name(name, "index_name"), [], [])
    request.documents.extend(_documents(raw, _id_or_digest, request.positions))
    return request


def updates(body: bytes) -> list[TextDocument]:
    """Parse the documents of an update. Each document must have an id.

    Raises:
        InvalidRequest: The request is invalid; the error names the field.
    """
    return _documents(members(body), _document_id)


def removals(body: bytes) -> list[str]:
    """Parse the ids of documents to delete, without duplicates.

    Raises:
        InvalidRequest: The request is invalid; the error names the field.
    """
    fields = pick(members(body), ("doc_ids",))
    ids = fields.items("doc_ids")
    if not ids:
        raise fields.invalid("doc_ids", "must be a list with at least one id")
    if len(ids) > MAX_DOCUMENTS:
        raise fields.invalid("doc_ids", f"must have at most {MAX_DOCUMENTS} ids")
    for number, document_id in enumerate(ids):
        if not isinstance(document_id, str) or not document_id:
            raise fields.invalid(f"doc_ids[{number}]", "must be a string that is not empty")
    return list(dict.fromkeys(ids))


def _documents(
    raw: dict[str, msgspec.Raw], id_of: Callable[[Fields, str], str], positions: list[int] | None = None
) -> list[TextDocument]:
    """Parse the documents of a request.

    Args:
        raw: The members of the body.
        id_of: Returns the id of a document from its fields and the digest of its text.
        positions: The list that receives, for each text, the position of its document. With this list, a document
            may occur several times, and its last metadata apply. With None, each document may occur only once.

    Raises:
        InvalidRequest: A document is invalid; the error names the field.
        PayloadTooLarge: The request has too many documents, or a document's metadata are too long.
    """
    try:
        items = _list.decode(raw["documents"]) if "documents" in raw else []
    except (ValueError, RecursionError):
        raise InvalidRequest("documents must be a list of objects.", field="documents") from None
    if not items:
        raise InvalidRequest("documents must have at least one document.", field="documents")
    if len(items) > MAX_DOCUMENTS:
        message = f"documents has {len(items)} documents. A request may have at most {MAX_DOCUMENTS}."
        raise PayloadTooLarge(message, field="documents")
    seen: dict[str, tuple[int, int]] = {}
    documents: list[TextDocument] = []
    for number, item in enumerate(items):
        document = _document(item, f"documents[{number}]", id_of)
        first, index = seen.setdefault(document.document_id, (number, len(documents)))
        if first == number:
            documents.append(document)
        elif positions is not None and documents[index].sha256 == document.sha256:
            documents[index] = document
        else:
            path = f"documents[{number}].doc_id"
            raise InvalidRequest(f"{path}: documents[{first}] has the same id. Send each id once.", field=path)
        if positions is not None:
            positions.append(index)
    return documents


def _document(item: msgspec.Raw, path: str, id_of: Callable[[Fields, str], str]) -> TextDocument:
    try:
        raw = _object.decode(item)
    except (ValueError, RecursionError):
        raise InvalidRequest(f"{path} must be an object.", field=path) from None
    fields = Fields({key: value(raw.get(key), f"{path}.{key}") for key in ("text", "doc_id")}, path)
    text = fields.text("text")
    if not text or text.isspace():
        raise fields.invalid("text", "must be a text that is not blank")
    if "\0" in text:
        raise fields.invalid("text", "must not contain NUL characters")
    digest = hashlib.sha256(text.encode()).hexdigest()
    path = fields.path("metadata")
    content = metadata(raw.get("metadata"), path)
    return TextDocument(id_of(fields, digest), text, content, digest, suffix_of_code(content, path))


def _id_or_digest(fields: Fields, digest: str) -> str:
    # RAGEngine's client sends an empty id with every document.
    return _document_id(fields, digest) if fields.text("doc_id") else digest


def _document_id(fields: Fields, _digest: str) -> str:
    document_id = fields.text("doc_id")
    if not document_id.strip() or len(document_id) > MAX_ID_LENGTH or has_controls(document_id):
        raise fields.invalid(
            "doc_id",
            f"must be an id of 1 to {MAX_ID_LENGTH} characters, without line breaks or control characters",
        )
    return document_id


def metadata(raw: msgspec.Raw | None, path: str) -> bytes:
    """Check metadata, and return their JSON unchanged. Absent or null metadata become an empty object.

    Raises:
        InvalidRequest: The metadata are not an object, or have an invalid number or character.
        PayloadTooLarge: The metadata are too long.
    """
    content = value(raw, path)
    if raw is None or content is None:
        return b"{}"
    if not isinstance(content, dict):
        raise InvalidRequest(f"{path} must be an object.", field=path)
    json = bytes(raw)
    if len(json) > MAX_METADATA_BYTES:
        raise PayloadTooLarge(f"{path} is longer than {MAX_METADATA_BYTES} bytes.", field=path)
    for scalar_path, scalar in _scalars(content, path):
        if isinstance(scalar, str) and "\0" in scalar:
            raise InvalidRequest(f"{scalar_path} must not contain NUL characters.", field=path)
        if isinstance(scalar, int) and not _MIN_INTEGER <= scalar <= _MAX_INTEGER:
            message = f"{scalar_path} must be a number from {_MIN_INTEGER} to {_MAX_INTEGER}."
            raise InvalidRequest(message, field=path)
    return json


def _scalars(content: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield all keys and scalar values with their paths."""
    # Not recursive, because the decoder accepts a thousand levels of nesting.
    stack = [(path, content)]
    while stack:
        item_path, item = stack.pop()
        if isinstance(item, dict):
            for key, member in item.items():
                yield f"a key of {item_path}", key
                stack.append((f"{item_path}.{key}", member))
        elif isinstance(item, list):
            stack += [(f"{item_path}[{number}]", element) for number, element in enumerate(item)]
        else:
            yield item_path, item


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
    """The request of ``POST /retrieve``.

    Attributes:
        index: The name of the index.
        query: The query.
        top: The maximum number of results.
        conditions: The conditions on a document's metadata. A document must meet all conditions.
        mode: How to search.
        semantic_ranker: Whether a reranker orders the results.
        fusion: How to combine dense and sparse scores, ``scores`` or ``ranks``, or None for the default.
        dense_weight: The weight of the dense score in a hybrid search, 0 to 1, or None for the default.
        expand: Whether to expand the query with terms that the best passages share, or None for the default.
    """

    index: str
    query: str
    top: int
    conditions: tuple[Equals, ...]
    mode: RetrievalMode = RetrievalMode.HYBRID
    semantic_ranker: bool = False
    fusion: str | None = None
    dense_weight: float | None = None
    expand: bool | None = None

    def tuned(self, defaults: Tuning) -> Tuning:
        """Return the options of the search. The request's options have priority over the defaults."""
        return replace(
            defaults,
            fusion=defaults.fusion if self.fusion is None else self.fusion,
            dense_weight=defaults.dense_weight if self.dense_weight is None else self.dense_weight,
            expand=defaults.expand if self.expand is None else self.expand,
        )


def search(body: bytes) -> Search:
    """Parse the body of ``POST /retrieve``.

    Raises:
        InvalidRequest: The request is invalid; the error names the field.
    """
    fields = pick(members(body), _SEARCH)
    name, query = fields.text("index_name"), fields.text("query")
    top = fields.integer("max_node_count", 1, MAX_NODES)
    if not name:
        raise fields.invalid("index_name", "is missing")
    if not query.strip():
        raise InvalidRequest("Query string cannot be empty.", field="query")
    filters = conditions(fields.get("metadata_filter"), "metadata_filter")
    return Search(
        keys.index_name(name, "index_name"),
        query,
        DEFAULT_NODES if top is None else top,
        filters,
        RetrievalMode(fields.one_of("retrieval_mode", MODES) or "hybrid"),
        fields.flag("semantic_ranker"),
        fields.one_of("fusion", ("scores", "ranks")) or None,
        fields.number("dense_weight", 0, 1),
        None if fields.get("expand") is None else fields.flag("expand"),
    )


def conditions(content: Any, path: str) -> tuple[Equals, ...]:
    """Return the conditions of a filter. All conditions must be true. Null means no conditions.

    Raises:
        InvalidRequest: The value is not an object of keys and scalar values, or a key or a number is invalid.
    """
    if content is None:
        return ()
    if not isinstance(content, dict):
        raise InvalidRequest(f"{path} must be an object of keys and values.", field=path)
    return tuple(_equals(key, scalar, path) for key, scalar in content.items())


def conditions_of_text(text: str, path: str) -> tuple[Equals, ...]:
    """Return the conditions of a JSON filter in a query string; see `conditions`. An empty text has no conditions.

    Raises:
        InvalidRequest: The text is not a JSON object of keys and scalar values, or a key or a number is invalid.
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
        raise InvalidRequest(f"{path} has a key that is blank or contains NUL characters.", field=path)
    field = f"{path}.{key}"
    if not isinstance(scalar, str | int | float | bool):
        raise InvalidRequest(f"{field} must be a string, a number or a boolean.", field=field)
    if isinstance(scalar, int) and not _MIN_INTEGER <= scalar <= _MAX_INTEGER:
        message = f"{field} must be a number from {_MIN_INTEGER} to {_MAX_INTEGER}."
        raise InvalidRequest(message, field=field)
    return Equals(key, _encode(scalar).decode())


def results_json(query: str, passages: tuple[Passage, ...]) -> bytes:
    """Return the body of the response of ``POST /retrieve``."""
    results = [source_node(passage) for passage in passages]
    return _encode({"query": query, "results": results, "count": len(results)})
