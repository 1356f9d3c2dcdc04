"""The OpenAPI schemas of requests and responses. The dialects validate the requests."""

from collections.abc import Mapping
from typing import Any

from gateway.dialects.openai.embeddings import MAX_INPUTS
from gateway.dialects.ragengine.documents import DEFAULT_NODES, MAX_DOCUMENTS, MAX_ID_LENGTH, MAX_NODES

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_METADATA: Schema = {"type": ["object", "null"], "description": "Stored with the document; null is the same as {}"}
_ID: Schema = {"type": "string", "minLength": 1, "maxLength": MAX_ID_LENGTH}


def _object(required: list[str], example: Any = None, **properties: Schema) -> Schema:
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    if example is not None:
        schema["example"] = example
    return schema


def _list(items: Schema, max_items: int | None = None) -> Schema:
    return {"type": "array", "items": items} | ({"minItems": 1, "maxItems": max_items} if max_items else {})


MESSAGE = _object(["message"], message=_TEXT)
DOCUMENTS = _list(
    _object([], doc_id=_TEXT, text=_TEXT, metadata=_METADATA, hash_value=_TEXT, is_truncated={"type": "boolean"})
)
INDEXING = _object(
    ["index_name", "documents"],
    {
        "index_name": "notes",
        "documents": [{"text": "The pivot bearing is renewed every nine years.", "metadata": {"author": "Ann"}}],
    },
    index_name=_TEXT,
    documents=_list(_object(["text"], text=_TEXT, metadata=_METADATA, doc_id=_ID), MAX_DOCUMENTS),
)
UPDATES = _object(
    ["documents"],
    {"documents": [{"doc_id": "bearing", "text": "The bearing was renewed in May.", "metadata": {}}]},
    documents=_list(_object(["doc_id", "text"], doc_id=_ID, text=_TEXT, metadata=_METADATA), MAX_DOCUMENTS),
)
REMOVALS = _object(["doc_ids"], {"doc_ids": ["bearing"]}, doc_ids=_list(_TEXT, MAX_DOCUMENTS))

_OWN: dict[str, Schema] = {
    "chunk_tokens": {"type": ["integer", "null"], "minimum": 16, "maximum": 8192},
    "chunk_overlap": {"type": ["integer", "null"], "minimum": 0},
    "fusion": {"enum": ["scores", "ranks", None]},
    "dense_weight": {"type": ["number", "null"], "minimum": 0, "maximum": 1},
    "expand": {"type": ["boolean", "null"]},
    "ocr": {"enum": ["auto", "off", None]},
}
"""The settings of an index. null: the platform's setting."""
_LANGUAGE: Schema = {
    "type": "string",
    "description": "Language of the texts, for text search: `auto` (by document), an ISO 639-1 code, or `legacy`",
}
SETTINGS = _object(
    [],
    {"embedding": "bge-m3"},
    embedding={"type": "string", "description": "A configured embedding model; default: the current model"},
    language=_LANGUAGE | {"description": "`auto` or an ISO 639-1 code; default: the current language"},
    **_OWN,
)
CHANGES = _object([], {"fusion": "ranks", "dense_weight": None}, **_OWN)
CREATION = _object(
    ["index_name"],
    {"index_name": "notes", "chunk_tokens": 128},
    index_name=_TEXT,
    embedding={"type": "string", "description": "A configured embedding model; default: the platform's"},
    language=_LANGUAGE | {"description": "Language of the texts: `auto` (the default) or an ISO 639-1 code"},
    **_OWN,
)
INDEX_SETTINGS = _object([], index_name=_TEXT, embedding=_TEXT, language=_LANGUAGE, **_OWN)
_COUNT: Schema = {"type": "integer"}
INDEX = _object([], index_name=_TEXT, embedding=_TEXT, language=_LANGUAGE, **_OWN, documents=_COUNT, chunks=_COUNT)
SNAPSHOTS = _object(
    ["snapshots"],
    snapshots=_list(
        _object(
            [],
            path=_TEXT,
            index=_TEXT,
            documents=_COUNT,
            chunks=_COUNT,
            size_bytes=_COUNT,
            created_at={"type": "string", "format": "date-time"},
        )
    ),
)
REBUILD = _object(
    [],
    state={"type": "string", "enum": ["running", "succeeded", "failed"]},
    embedding=_TEXT,
    language=_LANGUAGE,
    **_OWN,
    documents_done={"type": "integer"},
    documents_total={"type": "integer"},
    error=_TEXT,
    started_at={"type": "string", "format": "date-time"},
    finished_at={"type": ["string", "null"], "format": "date-time"},
)

_SCORE: Schema = {"type": ["number", "null"]}
FOUND = _object(
    [],
    query=_TEXT,
    results=_list(
        _object(
            [],
            doc_id=_TEXT,
            node_id=_TEXT,
            text=_TEXT,
            score={"type": "number"},
            dense_score=_SCORE,
            sparse_score=_SCORE,
            source={"type": "string", "enum": ["both", "dense_only", "sparse_only"]},
            metadata={"type": "object"},
        )
    ),
    count={"type": "integer"},
)
SEARCH = _object(
    ["index_name", "query"],
    {"index_name": "notes", "query": "When is the bearing renewed?", "metadata_filter": {"author": "Ann"}},
    index_name=_TEXT,
    query={"type": "string", "minLength": 1},
    max_node_count={"type": "integer", "minimum": 1, "maximum": MAX_NODES, "default": DEFAULT_NODES},
    metadata_filter={
        "type": ["object", "null"],
        "description": "Only documents with all these values in their metadata",
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    },
    retrieval_mode={"enum": ["hybrid", "vectors", "text"], "default": "hybrid"},
    semantic_ranker={"type": "boolean", "default": False, "description": "Order the results with a reranker"},
    fusion={
        "enum": ["scores", "ranks", None],
        "description": "Fusion of a hybrid search; null: the index's setting",
    },
    dense_weight={
        "type": ["number", "null"],
        "minimum": 0,
        "maximum": 1,
        "description": "Weight of the vectors in a hybrid search; null: the index's setting",
    },
    expand={
        "type": ["boolean", "null"],
        "description": "Expand the query with terms that the best passages share; null: the index's setting",
    },
)

_TOKENS = _list({"type": "integer", "minimum": 0, "maximum": 100_276})
MODEL = _object(
    [],
    id=_TEXT,
    object={"const": "model"},
    created={"type": "integer"},
    owned_by=_TEXT,
    max_model_len={"type": "integer", "description": "Size of the context window in tokens, if known"},
)
MODELS = _object([], object={"const": "list"}, data=_list(MODEL))
EMBEDDING = _object(
    ["input"],
    {"model": "all-MiniLM-L6-v2", "input": ["The pivot bearing"]},
    model={"type": "string", "description": "Default: the platform's default model"},
    input={
        "anyOf": [_TEXT, _list({"anyOf": [_TEXT, _TOKENS]}, MAX_INPUTS), _TOKENS],
        "description": "One or several texts. A text may be a list of cl100k_base token ids",
    },
    encoding_format={"type": "string", "enum": ["float", "base64"], "default": "float"},
    dimensions={"type": "integer", "description": "If present, it must be the model's number of dimensions"},
)
EMBEDDINGS = _object(
    [],
    object={"const": "list"},
    data=_list(
        _object(
            [],
            object={"const": "embedding"},
            index={"type": "integer"},
            embedding={"oneOf": [_list({"type": "number"}), _TEXT]},
        )
    ),
    model=_TEXT,
    usage=_object([], prompt_tokens={"type": "integer"}, total_tokens={"type": "integer"}),
)
_PAIRS: Schema = {"type": ["object", "null"], "additionalProperties": _TEXT}
_ITEM: Schema = {"type": "object", "description": "A message, a function call, or the output of a function"}
_HELLO = {"type": "message", "role": "user", "content": "When is the pivot bearing renewed?"}
CONVERSATION = _object([], {"items": [_HELLO]}, items={"type": ["array", "null"], "items": _ITEM}, metadata=_PAIRS)
CONVERSATION_CHANGE = _object(["metadata"], {"metadata": {"subject": "bearings"}}, metadata=_PAIRS)
CONVERSATION_ITEMS = _object(["items"], {"items": [_HELLO]}, items=_list(_ITEM))


def openapi_body(schema: Schema) -> dict[str, Any]:
    """Return the OpenAPI description of a request body with this schema."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def openapi_responses(schema: Schema, others: Mapping[int, str] | None = None) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI description of a route's responses.

    Args:
        schema: The schema of the body of a successful response.
        others: The descriptions of other statuses.
    """
    success = {"description": "Success", "content": {"application/json": {"schema": schema}}}
    return {200: success, **{status: {"description": text} for status, text in (others or {}).items()}}
