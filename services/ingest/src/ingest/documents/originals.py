"""Copies the object of a job into a temporary file."""

import asyncio
import contextlib
import hashlib
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from servicekit.disk import is_full
from servicekit.errors import Unavailable, UnreadableDocument

from ingest.ports import Originals

_MAX_INLINE_BYTES = 64 * 1024
"""Maximum bytes of a file whose SHA-256 is computed in the event loop, without a thread."""


@contextlib.asynccontextmanager
async def temporary_copy(
    originals: Originals, object_name: str, size_bytes: int, sha256: str, *, content: bytes = b""
) -> AsyncIterator[Path]:
    """Yield a temporary file with the object's bytes.

    Args:
        originals: The object store.
        object_name: The name of the object.
        size_bytes: The expected length of the object.
        sha256: The expected SHA-256 of the object, lower-case hex.
        content: The bytes of the object; if empty, the function reads the object from the store.

    Raises:
        UnreadableDocument: The bytes differ from those that were uploaded.
        NotFound, Unavailable: As `Originals.fetch`; Unavailable also if this machine's disk is full.
    """
    with tempfile.NamedTemporaryFile(prefix="causeway-ingest-") as scratch:
        path = Path(scratch.name)
        with full_disk_is_unavailable():
            if content:
                path.write_bytes(content)
            else:
                await originals.fetch(object_name, path, size_bytes)
        digest = _sha256(path) if size_bytes <= _MAX_INLINE_BYTES else await asyncio.to_thread(_sha256, path)
        if digest != sha256:
            raise _damaged()
        yield path


def verified(content: bytes, sha256: str) -> bytes:
    """Return the bytes of an original.

    Raises:
        UnreadableDocument: The bytes differ from those that were uploaded.
    """
    if hashlib.sha256(content).hexdigest() != sha256:
        raise _damaged()
    return content


@contextlib.contextmanager
def full_disk_is_unavailable() -> Iterator[None]:
    """Convert the error of a full disk to `Unavailable`, because another worker may have free space.

    Raises:
        Unavailable: The disk is full.
    """
    try:
        yield
    except OSError as error:
        if not is_full(error):
            raise
        raise Unavailable("The worker's disk is full.") from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _damaged() -> UnreadableDocument:
    return UnreadableDocument("The original differs from the upload: its SHA-256 does not match.")
