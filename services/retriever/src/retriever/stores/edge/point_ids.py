"""Ids of points, as text and as the engine has them.

The engine makes a UUID of each hit, and takes ids fastest as UUIDs. Making a text of one, and one of a text, takes
more time than finding the hit, and searches meet the same points again.
"""

import functools
import uuid

_MOST_KEPT = 32_768  # about 6 MB


@functools.lru_cache(_MOST_KEPT)
def text(number: int) -> str:
    """Return the id of a point, whose UUID has this number."""
    return str(uuid.UUID(int=number))


@functools.lru_cache(_MOST_KEPT)
def point_id(id_: str) -> uuid.UUID:
    """Return the UUID of an id."""
    return uuid.UUID(id_)
