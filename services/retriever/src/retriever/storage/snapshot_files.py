"""Lists and deletes the snapshots below a directory. The functions block: call them from a thread."""

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
        path: Path below the root, with slashes.
        index: Name of its index. Empty if the manifest cannot be read.
        documents: Number of documents. 0 if the manifest cannot be read.
        chunks: Number of chunks. 0 if the manifest cannot be read.
        size_bytes: Disk space of its files.
        created_at: Time when it was written.
    """

    path: str
    index: str
    documents: int
    chunks: int
    size_bytes: int
    created_at: datetime


def snapshot_directories(root: Path) -> Iterator[Path]:
    """Yield the directories below the root that have a snapshot, even a damaged one. Do not follow links."""
    for directory, _, names in os.walk(root):
        if MANIFEST in names:
            yield Path(directory)


def list_snapshots(root: Path) -> list[StoredSnapshot]:
    """Return the snapshots below the root, ordered by path."""
    found: list[StoredSnapshot] = []
    for directory in snapshot_directories(root):
        with contextlib.suppress(FileNotFoundError, snapshot_reader.NoSnapshot):  # it is being deleted
            found.append(_described(directory, directory.relative_to(root).as_posix()))
    return sorted(found, key=lambda snapshot: snapshot.path)


def _described(directory: Path, path: str) -> StoredSnapshot:
    manifest = directory / MANIFEST
    written = datetime.fromtimestamp(manifest.stat().st_mtime, UTC)
    own_files = [manifest, *(file for file in directory.iterdir() if POINTS.fullmatch(file.name))]
    size = sum(file.stat().st_blocks * 512 for file in own_files)
    try:
        read = snapshot_reader.read_manifest(directory)
    except InvalidRequest:
        return StoredSnapshot(path, "", 0, 0, size, written)
    return StoredSnapshot(path, read.index, read.documents, read.chunks, size, read.created_at)


def delete(directory: Path, root: Path) -> bool:
    """Delete the snapshot in a directory atomically and durably, and parent directories that become empty.

    Args:
        directory: The directory of the snapshot. Other snapshots below it are kept.
        root: The root, which is kept.

    Returns:
        Whether there was a snapshot.
    """
    if not (directory / MANIFEST).is_file():
        return False
    files.unlink(directory / MANIFEST)
    for path in directory.iterdir():
        if POINTS.fullmatch(path.name):
            path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # the directory is not empty
        while directory != root:
            directory.rmdir()
            directory = directory.parent
    return True
