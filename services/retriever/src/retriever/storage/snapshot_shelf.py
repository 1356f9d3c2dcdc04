"""The snapshots below a directory: what is there, and how one goes. Blocking: call from a thread."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from servicekit.errors import InvalidRequest

from retriever.storage import files, snapshot_reader
from retriever.storage.snapshot_writer import MANIFEST, POINTS


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot on the disk.

    Attributes:
        path: Below the root, with slashes.
        index: Which it is of; empty where its manifest cannot be read.
        documents: Number of documents in it; 0 likewise.
        chunks: Number of chunks in it; 0 likewise.
        size_bytes: What its files take on the disk.
        created_at: When it was written.
    """

    path: str
    index: str
    documents: int
    chunks: int
    size_bytes: int
    created_at: datetime


def places(root: Path) -> Iterator[Path]:
    """Yield the directories below the root that hold a snapshot, whole or damaged. Links are not followed."""
    for directory, _, names in os.walk(root):
        if MANIFEST in names:
            yield Path(directory)


def stored(root: Path) -> list[StoredSnapshot]:
    """Return the snapshots below the root, ordered by path."""
    found: list[StoredSnapshot] = []
    for place in places(root):
        with contextlib.suppress(FileNotFoundError, snapshot_reader.NoSnapshot):  # it is being deleted
            found.append(_described(place, place.relative_to(root).as_posix()))
    return sorted(found, key=lambda each: each.path)


def _described(place: Path, path: str) -> StoredSnapshot:
    manifest = place / MANIFEST
    written = datetime.fromtimestamp(manifest.stat().st_mtime, UTC)
    own = [manifest, *(each for each in place.iterdir() if POINTS.fullmatch(each.name))]
    size = sum(each.stat().st_blocks * 512 for each in own)
    try:
        said = snapshot_reader.read_manifest(place)
    except InvalidRequest:
        return StoredSnapshot(path, "", 0, 0, size, written)
    return StoredSnapshot(path, said.index, said.documents, said.chunks, size, said.created_at)


def delete(place: Path, root: Path) -> bool:
    """Delete the snapshot in a directory, and the directories above it that are empty then; return whether it was
    there. It is gone in one step, and for good.

    Args:
        place: The directory; other snapshots below it stay.
        root: Stays in any case.
    """
    if not (place / MANIFEST).is_file():
        return False
    files.unlink(place / MANIFEST)
    for each in place.iterdir():
        if POINTS.fullmatch(each.name):
            each.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # something else is in it
        while place != root:
            place.rmdir()
            place = place.parent
    return True
