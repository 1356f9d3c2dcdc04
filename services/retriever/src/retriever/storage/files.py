"""Durable files, and locks on directories.

Except `wait_until_unlocked`, the functions block: call them from a thread.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import shutil
import socket
import time
from pathlib import Path

from servicekit.errors import Unavailable

_COPY_BYTES = 1024 * 1024
_MAX_OWNER_BYTES = 512
_POLL_SECONDS = 0.05


def lock(directory: Path) -> int:
    """Lock a directory for this process until `unlock` or the end of the process. Create it if necessary.

    Raises:
        Unavailable: Another process holds the lock. The message names that process.
    """
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / "LOCK", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(descriptor, _MAX_OWNER_BYTES, 0).decode(errors="replace").strip() or "another process"
        os.close(descriptor)
        raise Unavailable(
            f"The store in {directory} is in use by {owner}. Stop that process first. To run several retrievers, "
            "use a Qdrant server (CAUSEWAY_QDRANT_URL)."
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return descriptor


async def wait_until_unlocked(directory: Path, seconds: float) -> None:
    """Wait until no process has a directory locked, at most for this time. After that, return without an error."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            unlock(lock(directory))
        except Unavailable:
            await asyncio.sleep(_POLL_SECONDS)
        else:
            return


def unlock(descriptor: int) -> None:
    """Unlock a directory. The descriptor is the one that `lock` returned."""
    os.close(descriptor)


def replace(path: Path, content: bytes) -> None:
    """Write a file atomically by a rename. It is durable when this returns."""
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    for directory in (path.parent, path.parent.parent):
        _sync_path(directory)


def unlink(path: Path) -> None:
    """Remove a file durably if it exists."""
    path.unlink(missing_ok=True)
    _sync_path(path.parent)


def sync_tree(directory: Path) -> None:
    """Sync all files under a directory to the disk."""
    for path in sorted(directory.rglob("*")):
        try:
            _sync_path(path)
        except FileNotFoundError:  # a segment of the WAL was renamed meanwhile: list the files again
            return sync_tree(directory)
    return _sync_path(directory)


def copy_tree(source: Path, target: Path) -> None:
    """Copy the files under a directory. They must not change meanwhile.

    Copies are sparse files, because most of a segment of the write-ahead log (WAL) is a hole.
    """
    shutil.copytree(source, target, copy_function=_copy_file)


def _copy_file(source: str, target: str) -> None:
    with Path(source).open("rb") as old, Path(target).open("wb") as new:
        position = _next_data(old.fileno(), 0)
        while position is not None:
            end = os.lseek(old.fileno(), position, os.SEEK_HOLE)
            new.seek(position)
            while position < end and (part := os.pread(old.fileno(), min(end - position, _COPY_BYTES), position)):
                new.write(part)
                position += len(part)
            position = _next_data(old.fileno(), end)
        new.truncate(os.fstat(old.fileno()).st_size)


def _next_data(descriptor: int, position: int) -> int | None:
    try:
        return os.lseek(descriptor, position, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # only a hole follows, or the end
            return None
        raise


def disk_usage(directory: Path) -> int:
    """Return the disk space of the files under a directory, in bytes."""
    size = 0
    for path in directory.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # a segment of the WAL was renamed meanwhile
            size += path.stat().st_blocks * 512
    return size


def create_numbered(directory: Path) -> Path:
    """Create a subdirectory whose name is the next number, and return it."""
    while True:
        existing = [int(path.name) for path in directory.iterdir() if path.name.isdecimal()]
        new = directory / str(max(existing, default=0) + 1)
        try:
            new.mkdir()
        except FileExistsError:  # another process has created it meanwhile
            continue
        return new


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
