"""Cached conversion of point ids between text and UUID.

The engine returns UUIDs and accepts them fastest. A conversion takes longer than finding the hit, and searches
often find the same points.
"""

import functools
import uuid

_MOST_KEPT = 32_768  # about 6 MB


@functools.lru_cache(_MOST_KEPT)
def text(number: int) -> str:
    """Return the id of the point whose UUID has this number."""
    return str(uuid.UUID(int=number))


@functools.lru_cache(_MOST_KEPT)
def point_id(id_: str) -> uuid.UUID:
    """Return the UUID of an id."""
    return uuid.UUID(id_)
