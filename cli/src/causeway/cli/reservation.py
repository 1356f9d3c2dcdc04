"""The exclusive resources of a stack: its data directory, ports and sockets."""

import contextlib
import fcntl
import os
import socket
import tempfile
from collections.abc import Collection, Iterable
from pathlib import Path

from causeway.cli import stack_file
from causeway.cli.errors import CommandError, InUse

HOST = "127.0.0.1"
_LAST_PORT = 65535
_MAX_SOCKET_PATH_BYTES = 100
"""The maximum length of a socket's path in bytes. Linux allows 107 bytes, macOS 103."""
_SHORT_DIRECTORY = "/tmp"  # noqa: S108  # only the owner may enter the directory that is created there


def lock(data_dir: Path) -> int:
    """Lock the data directory; create it if it is missing.

    Only the owner may access a new or empty directory, or one that a stack has used before. The mode of a directory
    with other content, such as ``/tmp``, does not change.

    Returns:
        A file descriptor. The lock ends when this descriptor and all copies in child processes are closed.

    Raises:
        InUse: Another stack has locked the directory.
        CommandError: The directory cannot be created or written.
    """
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        if (data_dir / "stack.lock").exists() or not any(data_dir.iterdir()):
            data_dir.chmod(0o700)
        descriptor = os.open(data_dir / "stack.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise CommandError(f"the data directory cannot be used: {error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        other = stack_file.read(data_dir)
        address = f" at {other['url']}" if "url" in other else ""
        raise InUse(f"a stack already runs on {data_dir}{address}") from error
    return descriptor


def ports(first: int, count: int) -> list[int]:
    """Return different free ports. The first port is ``first``; if this is 0, all ports are chosen freely.

    Raises:
        InUse: The requested port cannot be used.
    """
    # All sockets remain open until the last port is found, so that the ports differ.
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        if first:  # the port may still have connections of an earlier server
            sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sockets[0].bind((HOST, first))
        except OSError as error:
            message = (
                f"port {first} cannot be used: {error.strerror}. Use another --port, or --port 0 for a free one"
            )
            raise InUse(message) from error
        for other in sockets[1:]:
            other.bind((HOST, 0))
        return [bound.getsockname()[1] for bound in sockets]


def ports_from(first: int, count: int) -> list[int]:
    """Return the next free ports from `first` upwards; any free ports if `first` is 0.

    Raises:
        InUse: There are not enough free ports.
    """
    if not first:
        return ports(0, count)
    found = []
    for port in range(first, _LAST_PORT + 1):
        with contextlib.suppress(OSError), socket.socket() as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind((HOST, port))
            found.append(port)
        if len(found) == count:
            return found
    raise InUse(f"there are fewer than {count} free ports from {first} upwards; lower CAUSEWAY_METRICS_PORT")


def sockets(data_dir: Path, names: Collection[str]) -> dict[str, Path]:
    """Return the path of a Unix socket for each name, in a directory that only its owner may enter.

    The directory is ``sockets`` in the data directory. If the paths would be too long, it is a new directory in the
    temporary directory, or in ``/tmp`` if those paths are also too long.

    Raises:
        CommandError: The directory cannot be created.
    """
    directory = data_dir / "sockets"
    longest = max(len(f"/{name}.sock") for name in names)
    try:
        if len(os.fsencode(directory)) + longest > _MAX_SOCKET_PATH_BYTES:
            temporary = tempfile.gettempdir()
            is_long = len(os.fsencode(temporary)) + len("/causeway-12345678") + longest > _MAX_SOCKET_PATH_BYTES
            directory = Path(tempfile.mkdtemp(prefix="causeway-", dir=_SHORT_DIRECTORY if is_long else temporary))
        directory.mkdir(exist_ok=True)
        directory.chmod(0o700)
    except OSError as error:
        raise CommandError(f"the directory of the sockets cannot be used: {error}") from error
    return {name: directory / f"{name}.sock" for name in names}


def remove_sockets(paths: Iterable[Path]) -> None:
    """Remove the sockets and their directory."""
    for path in paths:
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty yet
            path.parent.rmdir()
