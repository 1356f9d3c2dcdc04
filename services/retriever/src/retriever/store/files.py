"""Files that survive a loss of power, and a directory with one owner. Blocking: call from a thread."""

import fcntl
import os
from pathlib import Path

from servicekit.errors import Unavailable


def own(directory: Path) -> int:
    """Takes a directory for this process, until `disown` or the process's end; makes it where it is not there.

    Raises:
        Unavailable: Another process has it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / "LOCK", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise Unavailable(f"Another process has the store in {directory} open.") from error
    return descriptor


def disown(descriptor: int) -> None:
    """Gives a directory up, by what `own` returned."""
    os.close(descriptor)


def replace(path: Path, content: bytes) -> None:
    """Writes a file by one rename; it and its directory last when this returns."""
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    for directory in (path.parent, path.parent.parent):
        _sync_path(directory)


def unlink(path: Path) -> None:
    """Removes a file, if it is there, for good."""
    path.unlink(missing_ok=True)
    _sync_path(path.parent)


def sync_tree(directory: Path) -> None:
    """Writes all files under a directory through to the disk."""
    for path in sorted(directory.rglob("*")):
        try:
            _sync_path(path)
        except FileNotFoundError:  # a segment of the log was renamed meanwhile: look again
            return sync_tree(directory)
    return _sync_path(directory)


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
