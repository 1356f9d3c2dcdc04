"""The names of a request's tools: those of the request, and those of the functions that a model calls."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

_LONGEST = 64
_DIGITS = 8


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool that the model knows as a function.

    Attributes:
        name: As the request has it.
        namespace: The namespace that it is in; empty: none.
        custom: Its input is one text.
    """

    name: str
    namespace: str = ""
    custom: bool = False


Functions = Mapping[str, Offered]
"""By the name of the function, the tools that differ from it."""


def function_name(namespace: str, name: str) -> str:
    """Return the name by which a model knows a tool: with its namespace, and no longer than model servers take."""
    if not namespace:
        return name
    whole = f"{namespace}{'' if namespace.endswith('__') else '__'}{name}"
    if len(whole) <= _LONGEST:
        return whole
    digest = hashlib.sha256(whole.encode()).hexdigest()[:_DIGITS]
    return f"{whole[: _LONGEST - _DIGITS - 1]}_{digest}"
