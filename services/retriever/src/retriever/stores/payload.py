"""The payloads of points in Qdrant, both embedded and on a server.

There are three kinds of points: ``chunk`` (vectors ``dense`` and ``bm25``), ``document`` (a record, no vector) and
``mark`` (no vector). A mark says that chunks of a document are being written or removed (`indexes.open_index`). A
server has two more kinds (`stores.qdrant.schema`).

Filter conditions test two payload fields. ``facts`` is a list of keywords. Each keyword (a fact) consists of a name
and a value: ``kind:chunk``, ``reader:*``. The value of a document's field is JSON: ``metadata.year:2024``,
``category:"manual"``. ``numbers`` has an object with ``key`` and ``value`` for each numeric field, for range
conditions. With this layout, a few payload indexes serve all metadata keys.
"""

import hashlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from retriever.domain import access
from retriever.domain.document import Chunk, Document, Version
from retriever.domain.fields import fields_of
from retriever.domain.filter import Field, Scalar
from retriever.ports.store import ChunkPoint, StoredChunk, Terms

DENSE = "dense"
SPARSE = "bm25"
CHUNK = "chunk"
DOCUMENT = "document"
MARK = "mark"
FACTS = "facts"
NUMBERS = "numbers"
STORED_CHUNK_FIELDS = ["document_id", "number", "page", "headings", "text", "overlap", "separator"]

_MAX_FACT_LENGTH = 128
"""Maximum length of a fact in characters. In place of a longer fact, its SHA-256 digest is stored."""

_record_decoder = msgspec.json.Decoder(Document)

Payload = dict[str, Any]


class ChunkPayloads:
    """Builds the payloads of a document's chunks."""

    def __init__(self, document: Document) -> None:
        fields = fields_of(document)
        self._document_id = document.document_id
        self._facts = [kind(CHUNK), version(document.version), *_readers(document), *_facts(fields)]
        self._numbers = _numbers(fields)

    def build(self, chunk: Chunk) -> Payload:
        """Return the payload of a chunk."""
        page: list[Field] = [("page", chunk.page)]
        return {
            "document_id": self._document_id,
            FACTS: [*self._facts, *_facts(page)],
            NUMBERS: [*self._numbers, *_numbers(page)],
            "number": chunk.number,
            "page": chunk.page,
            "headings": list(chunk.headings),
            "text": chunk.text,
            "indexed_text": chunk.indexed_text,
            "overlap": chunk.overlap,
            "separator": chunk.separator,
        }


def record_payload(document: Document) -> Payload:
    """Return the payload of a document's record in the catalogue."""
    fields = fields_of(document)
    return {
        "document_id": document.document_id,
        FACTS: [kind(DOCUMENT), *_readers(document), *_facts(fields)],
        NUMBERS: _numbers(fields),
        "record": msgspec.json.encode(document).decode(),
    }


def mark_payload(document_id: str) -> Payload:
    """Return the payload of a mark."""
    return {FACTS: [kind(MARK)], "document_id": document_id}


def decode_record(payload: Payload) -> Document:
    """Decode the record in a payload."""
    return _record_decoder.decode(payload["record"])


def stored_chunk(
    id_: str, payload: Payload, generation: int | None = None, analysis_language: str | None = None
) -> StoredChunk:
    """Return the chunk in a payload. `StoredChunk` describes the generation and the language."""
    return StoredChunk(
        id_,
        payload["document_id"],
        generation,
        payload["number"],
        payload["page"],
        tuple(payload["headings"]),
        payload["text"],
        payload.get("overlap", 0),
        payload.get("separator"),
        analysis_language,
    )


def chunk_point(stored: StoredChunk, payload: Payload, vectors: Mapping[str, Any]) -> ChunkPoint:
    """Return a chunk that was read with its payload and its vectors."""
    chunk = Chunk(
        stored.number,
        stored.text,
        payload["indexed_text"],
        stored.page,
        stored.headings,
        vectors[DENSE],
        stored.overlap,
        stored.separator,
    )
    sparse = vectors.get(SPARSE)
    return ChunkPoint(stored.id, chunk, Terms(sparse.indices, sparse.values) if sparse else Terms((), ()))


# The prefixes `kind:`, `version:` and `reader:`, and on a server `names:`, `holder:` and `index:`, are not names of
# fields that conditions may test (`domain.filter.is_field`). So these facts cannot collide with facts of fields.


def kind(name: str) -> str:
    """Return the fact for the points of a kind."""
    return f"kind:{name}"


def version(document_version: Version) -> str:
    """Return the fact for the chunks of a version."""
    return _keyword(f"version:{document_version.generation}:{document_version.document_id}")


def reader(token: str) -> str:
    """Return the fact for the points that a caller with a token may see."""
    return _keyword(f"reader:{token}")


def fact(name: str, value: Scalar) -> str:
    """Return the fact for the points in which a field has a value."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON has one type of number
    return _keyword(f"{name}:{value}" if _is_huge(value) else f"{name}:{msgspec.json.encode(value).decode()}")


def _readers(document: Document) -> list[str]:
    return [reader(token) for token in access.document_tokens(document.access)]


def _facts(fields: Iterable[Field]) -> list[str]:
    return [fact(name, value) for name, value in fields]


def _keyword(text: str) -> str:
    return text if len(text) <= _MAX_FACT_LENGTH else hashlib.sha256(text.encode()).hexdigest()


def _is_huge(value: Scalar) -> bool:
    # msgspec cannot encode integers of more than 64 bits.
    return isinstance(value, int) and value.bit_length() > 63


def _numbers(fields: Iterable[Field]) -> list[Payload]:
    return [
        {"key": name, "value": _float(value)}
        for name, value in fields
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]


def _float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # use the nearest float, so that range conditions still match
        return sys.float_info.max if value > 0 else -sys.float_info.max
