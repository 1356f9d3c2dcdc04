"""The error for a path without a route; all layers use the same one."""

import re

from servicekit.errors import CausewayError, InvalidRequest, NotFound
from starlette.types import Scope

_INDEX = re.compile(
    r"/(?:indexes/(?P<name>.+?)(?P<tail>/documents(?:/delete)?|/rebuild)?|(?:persist|load)/(?P<other>.+))$"
)
# Routes of OpenAI's API, whose clients get `/v1` as a part of the base URL.
_BELOW_V1 = re.compile(r"/(?:chat/completions|completions|embeddings|models|responses)$")


def nothing_at(scope: Scope) -> CausewayError:
    """Return the error about the path, or about an index's name with a slash, which makes another path."""
    if name := _misnamed(scope):
        return InvalidRequest(f"Invalid index name: {name[:200]!r}.", field="index")
    path = scope["path"]
    hint = " The base URL of an OpenAI client ends in /v1." if _BELOW_V1.search(path) and "/v1/" not in path else ""
    return NotFound(f"The path {path} does not exist.{hint}", resource=path)


def _misnamed(scope: Scope) -> str:
    found = _INDEX.search(scope["path"])
    name: str = (found["name"] or found["other"]) if found else ""
    is_encoded = b"%2f" in scope.get("raw_path", b"").lower()
    return name if "/" in name and (is_encoded or not found or found["tail"] or found["other"]) else ""
