"""The OpenAPI description of the RAG chat protocol's stages."""

from gateway.dialects.openapi import CONTEXT_TOKEN_RATIO, DETECTORS, RETRIEVAL_MODE, Schema, operation
from gateway.dialects.rag_chat.overrides import DEFAULT_TOP, MAX_TOP

JANUARY_2024 = "RAG chat protocol, January 2024"
JANUARY_28_2024 = "AI chat protocol, 28 January 2024"
APRIL_2024 = "AI chat protocol, April 2024"
MAY_2024 = "AI chat protocol, 29 May 2024"
APRIL_2026 = "AI chat protocol, 10 April 2026"

TAGS = {
    APRIL_2024: "Also the default of paths without a prefix. A request or its front end may select another stage.",
    MAY_2024: "With files in messages.",
    APRIL_2026: "Answers in `output_text`.",
    JANUARY_28_2024: "Answers in `choices`.",
    JANUARY_2024: "Answers in `choices`; `/ask` accepts one question.",
}
"""The groups of the routes, in the order of the document."""

_FLAG = {"type": ["boolean", "null"], "default": False}
_OBJECT: Schema = {"type": "object"}
_STATE = {"description": "The answer repeats this value; without it, the answer contains a new session name"}
_LINES = {"schema": {"type": "string", "description": "One JSON object per line"}}


def _overrides() -> Schema:
    return {
        "type": ["object", "null"],
        "description": "Settings for this turn; the gateway ignores unknown, null and empty settings.",
        "properties": {
            "index": {
                "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
                "description": "Index to search, or several indexes to search together",
            },
            "model": {"type": "string", "description": "Model that answers"},
            "retrieval_mode": RETRIEVAL_MODE,
            "top": {"type": "integer", "minimum": 1, "maximum": MAX_TOP, "default": DEFAULT_TOP},
            "semantic_ranker": _FLAG,
            "semantic_captions": _FLAG,
            "query_rewriting": _FLAG,
            "suggest_followup_questions": _FLAG,
            "use_oid_security_filter": _FLAG,
            "use_groups_security_filter": _FLAG,
            "include_category": {"type": "string"},
            "exclude_category": {"type": "string"},
            "minimum_search_score": {"type": "number"},
            "minimum_reranker_score": {"type": "number"},
            "context_token_ratio": CONTEXT_TOKEN_RATIO,
            "prompt_template": {
                "type": "string",
                "description": "Replaces the system prompt; after `>>>` it is appended to it",
            },
            "temperature": {"type": "number", "minimum": 0, "maximum": 2},
            "seed": {"type": "integer"},
            "max_tokens": {"type": "integer", "minimum": 1},
            "reasoning_effort": {"type": "string"},
            "language": {"type": "string"},
            "vector_fields": {"type": ["array", "string"], "items": {"type": "string"}},
            "use_gpt4v": _FLAG,
            "gpt4v_input": {"type": "string", "enum": ["text", "texts", "textAndImages", "images"]},
            "send_image_sources": {"type": ["boolean", "null"]},
            "send_text_sources": {"type": ["boolean", "null"]},
            "detectors": DETECTORS,
        },
    }


def _message(*roles: str) -> Schema:
    return {
        "type": "object",
        "required": ["role", "content"],
        "properties": {"role": {"type": "string", "enum": list(roles)}, "content": {"type": "string"}},
    }


def _request(*roles: str, state: str = "session_state", has_stream: bool = False) -> Schema:
    context = {"type": ["object", "null"], "properties": {"overrides": _overrides()}}
    properties: Schema = {
        "messages": {"type": "array", "items": _message(*roles), "minItems": 1},
        "context": context,
        state: _STATE,
    }
    if has_stream:
        properties["stream"] = _FLAG
    return {
        "type": "object",
        "required": ["messages"],
        "properties": properties,
        "example": {
            "messages": [{"role": "user", "content": "When will the pivot bearing be renewed?"}],
            "context": {"overrides": {"index": "handbook", "top": 3}},
        },
    }


def _answer(**properties: Schema) -> Schema:
    return {"application/json": {"schema": {"type": "object", "properties": properties}}}


_CONTEXT = {
    "type": "object",
    "properties": {
        "data_points": _OBJECT,
        "thoughts": {"type": "array", "items": _OBJECT},
        "followup_questions": {"type": "array", "items": {"type": "string"}},
        "detections": _OBJECT,
    },
}
TEXT_ERROR = {"type": "object", "properties": {"error": {"type": "string"}}}
"""The schema of errors in most stages, and of the other routes that their front ends call."""

_CODED_ERROR = {
    "type": "object",
    "properties": {
        "error": {"type": "object", "properties": {"code": {"type": "string"}, "message": {"type": "string"}}}
    },
}


def paths() -> dict[str, Schema]:
    """Return the description of each path of the stages."""

    def describe(prefix: str, path: str, tag: str, request: Schema, answer: Schema, error: Schema) -> None:
        if "application/json" not in request:
            request = {"application/json": {"schema": request}}
        summary = "Answer as a stream" if path.endswith("/stream") else "Answer in one piece"
        operations[prefix + path] = operation(summary, tag, request, answer, error)

    operations: dict[str, Schema] = {}
    roles = ("assistant", "user")
    choices = _answer(choices={"type": "array", "items": _OBJECT}) | {"application/json-lines": _LINES}
    message = _answer(message=_message("assistant"), context=_CONTEXT, session_state=_STATE)
    rag = _request("system", *roles, has_stream=True)
    tag = JANUARY_2024
    for prefix, path in (("/2024-01", "/chat"), ("/2024-01", "/ask"), ("", "/ask")):
        describe(prefix, path, tag, rag, choices, TEXT_ERROR)
    tag = JANUARY_28_2024
    describe("/2024-01-28", "/chat", tag, _request(*roles, has_stream=True), choices, TEXT_ERROR)
    tag = APRIL_2024
    for prefix in ("/2024-04", ""):
        request = _request(*roles)
        describe(prefix, "/chat", tag, request, message, TEXT_ERROR)
        describe(prefix, "/chat/stream", tag, request, {"application/json-lines": _LINES}, TEXT_ERROR)
    tag = MAY_2024
    request = _request("system", *roles, state="sessionState")
    form = {"type": "object", "required": ["json"], "properties": {"json": request}}
    bodies = {"application/json": {"schema": request}, "multipart/form-data": {"schema": form}}
    message = _answer(message=_message("assistant"), context=_CONTEXT, sessionState=_STATE)
    for prefix in ("/2024-05-29", "/api"):
        describe(prefix, "/chat", tag, bodies, message, _CODED_ERROR)
        describe(prefix, "/chat/stream", tag, bodies, {"application/jsonl": _LINES}, _CODED_ERROR)
    tag = APRIL_2026
    text = _answer(output_text={"type": "string"}, context=_CONTEXT, session_state=_STATE)
    describe("/2026-04-10", "/chat", tag, _request(*roles), text, TEXT_ERROR)
    lines = {"application/json-lines": _LINES}
    describe("/2026-04-10", "/chat/stream", tag, _request(*roles), lines, TEXT_ERROR)
    return operations
