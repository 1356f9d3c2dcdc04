"""Cached conversion of point ids between text and UUID.

The engine returns UUIDs and accepts UUIDs fastest. A conversion takes longer than the search for a hit. Searches
often find the same points.
"""

import functools
import uuid

_MAX_ENTRIES = 32_768  # about 6 MB


@functools.lru_cache(_MAX_ENTRIES)
def text(number: int) -> str:
    """Return the id of the point whose UUID has this number."""
    return str(uuid.UUID(int=number))


@functools.lru_cache(_MAX_ENTRIES)
def point_id(id_: str) -> uuid.UUID:
    """Return the UUID of an id."""
    return uuid.UUID(id_)
