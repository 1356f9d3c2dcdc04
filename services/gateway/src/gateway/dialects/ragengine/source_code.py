"""Recognises source code in RAGEngine's documents: their `metadata` has `split_type: code` and a `language`."""

from typing import Any

import msgspec
from servicekit.errors import InvalidRequest

_SUFFIXES = {
    "bash": ".sh",
    "c": ".c",
    "cpp": ".cpp",
    "csharp": ".cs",
    "css": ".css",
    "dart": ".dart",
    "elixir": ".ex",
    "erlang": ".erl",
    "go": ".go",
    "groovy": ".groovy",
    "haskell": ".hs",
    "hcl": ".hcl",
    "java": ".java",
    "javascript": ".js",
    "julia": ".jl",
    "kotlin": ".kt",
    "lua": ".lua",
    "objc": ".m",
    "ocaml": ".ml",
    "perl": ".pl",
    "php": ".php",
    "powershell": ".ps1",
    "proto": ".proto",
    "python": ".py",
    "r": ".r",
    "ruby": ".rb",
    "rust": ".rs",
    "scala": ".scala",
    "scss": ".scss",
    "sql": ".sql",
    "swift": ".swift",
    "tsx": ".tsx",
    "typescript": ".ts",
    "zig": ".zig",
}
"""The file suffix for each of RAGEngine's language names. The ingest service chooses the grammar by the suffix."""


class _Splitting(msgspec.Struct):
    split_type: Any = None
    language: Any = None


_splitting = msgspec.json.Decoder(_Splitting)


def suffix_of_code(metadata_json: bytes, path: str) -> str:
    """Return the file suffix of a document's programming language, or an empty string if it is not code.

    Args:
        metadata_json: The metadata as a JSON object.
        path: The path of the metadata in the request.

    Raises:
        InvalidRequest: The language is missing or unknown.
    """
    options = _splitting.decode(metadata_json)
    if options.split_type != "code":
        return ""
    field = f"{path}.language"
    if not options.language:
        raise InvalidRequest(f"{path}: Language not specified in node metadata.", field=field)
    suffix = _SUFFIXES.get(options.language) if isinstance(options.language, str) else None
    if suffix is None:
        known = ", ".join(_SUFFIXES)
        language = str(options.language)[:50]
        raise InvalidRequest(
            f"{field}: Could not find language library for {language}. The known languages are {known}.",
            field=field,
        )
    return suffix
