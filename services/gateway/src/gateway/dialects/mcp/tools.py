"""The tools: their names, their descriptions, and the schemas of their arguments and results."""

from typing import Any

import mcp_types as types

from gateway.dialects.mcp.agent_request import DEFAULT_PASSAGES, MAX_PASSAGES
from gateway.frontends.mcp_block import TOOLS

MAX_QUERY_LENGTH = 10_000
"""The maximum number of characters of a query or a question."""
DEFAULT_LENGTH = 20_000
"""The number of characters of a document's text in one result if the call does not set it."""
MAX_TEXT_LENGTH = 100_000
"""The maximum number of characters of a document's text in one result."""
MAX_OFFSET = 2**31 - 1
MAX_PAGE = 1_000_000

_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER: dict[str, Any] = {"type": "integer"}
_INDEX = {
    "type": "string",
    "description": "Index to search. Without it, the default indexes are searched. list_indexes returns the names.",
}


def _object(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _result(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _integer(minimum: int, maximum: int, default: int | None = None, **more: Any) -> dict[str, Any]:
    optional = {} if default is None else {"default": default}
    return {"type": "integer", "minimum": minimum, "maximum": maximum, **optional, **more}


def _query(description: str) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": MAX_QUERY_LENGTH, "description": description}


_PART_ARGUMENTS = {
    "offset": _integer(0, MAX_OFFSET, 0, description="Characters to skip: next_offset of the previous part"),
    "length": _integer(1, MAX_TEXT_LENGTH, DEFAULT_LENGTH, description="Maximum number of characters of the text"),
    "first_page": _integer(1, MAX_PAGE, description="First page, if the document has pages"),
    "last_page": _integer(1, MAX_PAGE, description="Last page"),
}
"""The arguments that select a part of a document's text."""

_READ_ONLY = types.ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)

_DEFINITIONS = {
    "search": types.Tool(
        name="search",
        title="Search documents",
        description="Find the passages of the organisation's documents that match a query best, by meaning and by "
        "words. Each result has the id of its document, which fetch reads, and a url to cite.",
        input_schema=_object(
            ["query"],
            query=_query("What to look for, in a few words or a sentence"),
            index=_INDEX,
            top=_integer(1, MAX_PASSAGES, DEFAULT_PASSAGES, description="Maximum number of results"),
            filters={
                "type": "object",
                "description": "All of these values must be in the document's metadata",
                "additionalProperties": {"type": ["string", "number", "boolean"]},
            },
        ),
        output_schema=_result(
            results=_list(
                _result(
                    id=_TEXT,
                    title=_TEXT,
                    url=_TEXT,
                    text=_TEXT,
                    score={"type": "number"},
                    index=_TEXT,
                    page={"type": "integer", "description": "0: the document has no pages"},
                    metadata={"type": "object"},
                )
            )
        ),
        annotations=_READ_ONLY,
    ),
    "fetch": types.Tool(
        name="fetch",
        title="Read a document",
        description="Read the text of a document that search found, whole or in parts. If next_offset is a "
        "number, more text follows: call again with this number as offset.",
        input_schema=_object(
            ["id"],
            id={"type": "string", "minLength": 3, "description": "The id of a search result"},
            **_PART_ARGUMENTS,
        ),
        output_schema=_result(
            id=_TEXT,
            title=_TEXT,
            text=_TEXT,
            url=_TEXT,
            metadata={"type": "object"},
            index=_TEXT,
            pages={"type": "integer", "description": "Number of pages; 0: the document has no pages"},
            next_offset={"type": ["integer", "null"], "description": "null: the text ends here"},
        ),
        annotations=_READ_ONLY,
    ),
    "ask": types.Tool(
        name="ask",
        title="Ask the documents",
        description="Get an answer from the organisation's documents, with the passages that it cites. A model "
        "writes it, so it takes longer than search.",
        input_schema=_object(
            ["question"],
            question=_query("The question, in full"),
            index=_INDEX,
            language={"type": "string", "description": "Language of the answer, like en or pt-BR"},
        ),
        output_schema=_result(
            answer=_TEXT,
            citations=_list(
                _result(
                    label={"type": "string", "description": "The text in square brackets in the answer"},
                    id=_TEXT,
                    title=_TEXT,
                    url=_TEXT,
                    text=_TEXT,
                    index=_TEXT,
                    page=_NUMBER,
                )
            ),
        ),
        annotations=types.ToolAnnotations(
            read_only_hint=True, destructive_hint=False, idempotent_hint=False, open_world_hint=False
        ),
    ),
    "list_indexes": types.Tool(
        name="list_indexes",
        title="List indexes",
        description="List the indexes that search, fetch and ask can read, with the number of documents that you "
        "may see in each.",
        input_schema=_object([]),
        output_schema=_result(
            indexes=_list(
                _result(
                    name=_TEXT,
                    documents=_NUMBER,
                    default={"type": "boolean", "description": "Used by calls without an index"},
                )
            )
        ),
        annotations=_READ_ONLY,
    ),
}
DEFINITIONS = tuple(_DEFINITIONS[name] for name in TOOLS)
"""The tools, in the order in which clients receive them."""


def input_schema(name: str) -> dict[str, Any] | None:
    """Return the schema of a tool's arguments, or None if the tool does not exist."""
    tool = next((tool for tool in DEFINITIONS if tool.name == name), None)
    return None if tool is None else tool.input_schema
