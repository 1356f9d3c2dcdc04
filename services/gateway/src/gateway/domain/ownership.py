"""Whose own a document is: written by the gateway alone, for who asked it to."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from servicekit.errors import PermissionDenied
from servicekit.principal import Principal

OWNER = "uploaded_by"
"""Key of the metadata that says it."""


class _Said(msgspec.Struct):
    uploaded_by: Any = msgspec.UNSET


_said = msgspec.json.Decoder(_Said)


def own_metadata(principal: Principal) -> bytes:
    """The metadata of a document of the caller's own."""
    return msgspec.json.encode({OWNER: principal.owner})


def owned_by(principal: Principal) -> dict[str, Sequence[str]]:
    """What finds the documents of the caller's own."""
    return {f"metadata.{OWNER}": principal.owners}


def check(principal: Principal, metadata: Iterable[bytes]) -> None:
    """Looks at what a caller brings as documents' metadata, JSON objects.

    Raises:
        PermissionDenied: A document would be somebody else's own.
    """
    for json in metadata:
        # Most have no such key; it may be written with escapes.
        if b"uploaded_by" not in json and b"\\" not in json:
            continue
        if _said.decode(json).uploaded_by not in (msgspec.UNSET, *principal.owners):
            raise PermissionDenied(
                f"metadata.{OWNER} says whose own a document is: it may name the caller, and nobody else.",
                field=f"metadata.{OWNER}",
            )
