"""The owners of documents. A caller can name only itself as the owner of a document."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from servicekit.errors import PermissionDenied
from servicekit.principal import Principal

OWNER = "uploaded_by"
"""The metadata key that names the owner."""


class _Metadata(msgspec.Struct):
    uploaded_by: Any = msgspec.UNSET


_metadata = msgspec.json.Decoder(_Metadata)


def own_metadata(principal: Principal) -> bytes:
    """Return the metadata of a document that the caller owns."""
    return msgspec.json.encode({OWNER: principal.owner})


def owned_by(principal: Principal) -> dict[str, Sequence[str]]:
    """Return the filter that finds the caller's own documents."""
    return {f"metadata.{OWNER}": principal.owners}


def check(principal: Principal, metadata: Iterable[bytes]) -> None:
    """Check the owner in documents' metadata (JSON objects) that a caller sends.

    Raises:
        PermissionDenied: The metadata name another owner.
    """
    for json in metadata:
        # Most metadata do not contain the key and need no decoding. The key may contain escapes.
        if b"uploaded_by" not in json and b"\\" not in json:
            continue
        if _metadata.decode(json).uploaded_by not in (msgspec.UNSET, *principal.owners):
            raise PermissionDenied(
                f"metadata.{OWNER}: the caller is not this owner. Omit the key, or name the caller.",
                field=f"metadata.{OWNER}",
            )
