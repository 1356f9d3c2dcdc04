"""Opening a shard."""

from pathlib import Path

import qdrant_edge as edge
from servicekit.errors import Unavailable

from retriever.stores.edge import schema
from retriever.stores.edge.manifest import Manifest


def load(directory: Path, manifest: Manifest) -> edge.EdgeShard:
    """Open the shard in a directory as its manifest describes it.

    Raises:
        Unavailable: The shard is damaged.
    """
    try:
        return edge.EdgeShard.load(str(directory), schema.config(manifest.spec.dimension, manifest.vectors))
    except Exception as error:  # Edge raises no specific class
        raise damaged(directory.parent) from error


def damaged(directory: Path) -> Unavailable:
    """Return the error for a collection that cannot be opened."""
    return Unavailable(f"The index in {directory} cannot be opened.")
