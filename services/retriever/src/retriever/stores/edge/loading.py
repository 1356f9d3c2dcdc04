"""Opening a shard."""

from pathlib import Path

import qdrant_edge as edge
from servicekit.errors import Unavailable

from retriever.stores.edge import schema


def load(directory: Path, dimension: int) -> edge.EdgeShard:
    """Open the shard in a directory.

    Raises:
        Unavailable: It is damaged.
    """
    try:
        return edge.EdgeShard.load(str(directory), schema.config(dimension))
    except Exception as error:  # Edge raises nothing more special
        raise damaged(directory.parent) from error


def damaged(directory: Path) -> Unavailable:
    """The error of a collection that cannot be opened."""
    return Unavailable(f"The index in {directory} cannot be opened.")
