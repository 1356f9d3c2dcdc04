"""Creates the error for a path without a route."""

import re

from servicekit.errors import CausewayError, InvalidRequest, NotFound
from starlette.types import Scope

_INDEX = re.compile(
    r"/(?:indexes/(?P<name>.+?)(?P<tail>/documents(?:/delete)?|/rebuild)?|(?:persist|load)/(?P<other>.+))$"
)
# Routes of OpenAI's API. The base URL of its clients must contain `/v1`.
_BELOW_V1 = re.compile(r"/(?:chat/completions|completions|embeddings|models|responses)$")
# Routes of OpenAI's API that Causeway does not have, with their replacements.
_REPLACEMENTS = {
    "files": "Upload documents with POST /documents (docs/ingest.md).",
    "vector_stores": "Use an index instead of a vector store. POST /documents adds files to an index.",
    "assistants": "Use /v1/responses.",
    "threads": "Use /v1/responses.",
}


def no_route_error(scope: Scope) -> CausewayError:
    """Return the error for an unknown path. If an index name with a slash is the cause, the error says that."""
    if name := _invalid_index_name(scope):
        return InvalidRequest(f"Invalid index name: {name[:200]!r}.", field="index")
    path = scope["path"]
    return NotFound(f"The path {path} does not exist. {_hint(path)}".rstrip(), resource=path)


def _hint(path: str) -> str:
    _, has_v1, below = path.partition("/v1/")
    if has_v1:
        return _REPLACEMENTS.get(below.partition("/")[0], "")
    return "The base URL of an OpenAI client ends in /v1." if _BELOW_V1.search(path) else ""


def _invalid_index_name(scope: Scope) -> str:
    found = _INDEX.search(scope["path"])
    name: str = (found["name"] or found["other"]) if found else ""
    is_encoded = b"%2f" in scope.get("raw_path", b"").lower()
    return name if "/" in name and (is_encoded or not found or found["tail"] or found["other"]) else ""
