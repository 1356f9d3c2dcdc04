"""The manifest of a collection's directory, and counts of changes of its shard."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog
from servicekit import keys

from retriever.domain.index import IndexSpec
from retriever.storage import files
from retriever.stores.vector_storage import VectorStorage

_log = structlog.get_logger(__name__)

MANIFEST = "index.json"


class Manifest(msgspec.Struct, frozen=True):
    """The manifest of a collection.

    Attributes:
        spec: The specification of the index.
        generation: Name of the current shard's directory.
        built: Number of points when the shard was built.
        removed: Number of points that were removed since then, stored when the collection was last closed cleanly.
        note: The note of the collection; see `Collection.put_note`.
        vectors: The storage of the dense vectors. Earlier versions did not store it and kept full vectors.
    """

    spec: IndexSpec
    generation: int
    built: int = 0
    removed: int = 0
    note: bytes = b""
    vectors: VectorStorage = VectorStorage()

    @property
    def name(self) -> str:
        """The name of the collection."""
        return keys.collection(self.spec.tenant, self.spec.name)


@dataclass
class Tally:
    """The numbers of added and removed points since a shard was built, or since the last failed compaction."""

    added: int = 0
    removed: int = 0


async def replace_manifest(directory: Path, manifest: Manifest) -> None:
    """Write the manifest of a collection's directory atomically and durably.

    Raises:
        OSError: The manifest could not be written. The earlier manifest remains.
    """
    path, content = directory / MANIFEST, msgspec.json.encode(manifest)
    try:
        await asyncio.to_thread(files.replace, path, content)
    except OSError:
        # The rename may have succeeded although its sync failed. Then the next start reads the new manifest.
        if not path.exists() or path.read_bytes() != content:
            raise
        _log.exception("a manifest may not be synced to the disk", index=manifest.spec.name)
