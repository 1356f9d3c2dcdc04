"""The names of tools in a request, and the names of the functions that a model calls for them."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

_MAX_NAME_LENGTH = 64
_DIGEST_LENGTH = 8


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that the model calls as a function.

    Attributes:
        name: The name of the tool in the request.
        namespace: The name of the namespace, or empty if the tool has no namespace.
        is_custom: Whether the tool is a custom tool, whose input is one text.
    """

    name: str
    namespace: str = ""
    is_custom: bool = False


Functions = Mapping[str, OfferedTool]
"""Custom tools and tools in namespaces, by the names of the functions that the model calls for them."""


def function_name(namespace: str, name: str) -> str:
    """Return the name of a tool's function, which contains the namespace and has at most 64 characters."""
    if not namespace:
        return name
    whole = f"{namespace}{'' if namespace.endswith('__') else '__'}{name}"
    if len(whole) <= _MAX_NAME_LENGTH:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{whole[: _MAX_NAME_LENGTH - _DIGEST_LENGTH - 1]}_{digest}"
