"""Backup and restore of the indexes of all tenants as snapshots, for the operator."""

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO

from embedding.models import EmbeddingModels
from servicekit.errors import Conflict, DeadlineExceeded, InvalidRequest, NotFound, Unavailable

from retriever.domain.index import Contents, IndexSpec
from retriever.indexes.lifecycle import Indexes
from retriever.indexes.open_index import Index
from retriever.indexes.snapshots import check_vectors
from retriever.storage import snapshot_reader
from retriever.storage.snapshot_writer import MANIFEST

_PIECE_BYTES = 256 * 1024
_MAX_MANIFEST_BYTES = 64 * 1024
_STALL_SECONDS = 60.0
_ABANDONED_SECONDS = 24 * 3600.0
"""Older temporary directories belong to terminated processes, because no backup or restore takes this long."""


class Backups:
    """Streams snapshots. A snapshot is on the disk only while it is sent or received.

    Args:
        indexes: The indexes.
        directory: Directory for the snapshots, created for the first snapshot.
        models: The configured models. Snapshots with vectors of another model are refused.
        stall_seconds: Maximum seconds that a client may need to receive or send one message. After that, the
            snapshot is removed, so that other backups can continue.
    """

    def __init__(
        self, indexes: Indexes, directory: Path, models: EmbeddingModels, *, stall_seconds: float = _STALL_SECONDS
    ) -> None:
        self._indexes = indexes
        self._directory = directory
        self._models = models
        self._stall_seconds = stall_seconds
        # At most one snapshot exists at a time, because a snapshot takes as much disk space as its index.
        self._lock = asyncio.Lock()

    async def names(self) -> list[tuple[str, str]]:
        """Return tenant and name of all indexes, including damaged ones, in order."""
        return await self._indexes.names()

    async def save(self, tenant: str, name: str) -> AsyncGenerator[bytes, None]:
        """Yield the manifest of an index's snapshot, then its points in pieces.

        Raises:
            NotFound: The index does not exist.
            Unavailable: The index cannot be read, or the disk has no space for its snapshot.
            RateLimited: Too many compactions and snapshots run or wait.
            DeadlineExceeded: The client did not receive a message in time.
        """
        index = await self._indexes.get(tenant, name)
        async with contextlib.AsyncExitStack() as resources:
            await resources.enter_async_context(self._lock)
            directory = await resources.enter_async_context(self._temporary_directory())
            await index.collection.persist(directory)
            manifest = await asyncio.to_thread((directory / MANIFEST).read_bytes)
            points = directory / snapshot_reader.read_manifest(directory).points
            file = resources.enter_context(points.open("rb"))
            stall = _Stall(resources, self._stall_seconds)
            with stall.limited():
                yield manifest
            while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
                with stall.limited():
                    yield piece

    async def restore(self, tenant: str, name: str, manifest: bytes, pieces: AsyncIterator[bytes]) -> Contents:
        """Create an index from a snapshot and return its numbers of documents and chunks.

        Raises:
            Conflict: An index with this name exists.
            InvalidRequest: The snapshot is damaged or incomplete, or its embedding model is not configured.
            Unavailable: The restore failed; nothing changed.
            RateLimited: Too many compactions and snapshots run or wait.
            DeadlineExceeded: The client did not send a piece in time.
        """
        if len(manifest) > _MAX_MANIFEST_BYTES:
            raise InvalidRequest("The snapshot's manifest is too long.", field="manifest")
        async with self._lock, self._temporary_directory() as directory:
            (directory / MANIFEST).write_bytes(manifest)
            parsed = snapshot_reader.read_manifest(directory)
            check_vectors(parsed, self._models)
            spec = IndexSpec(
                tenant, name, parsed.embedding_model, parsed.dimension, parsed.settings, parsed.language
            )
            await self._check_absent(tenant, name)
            with (directory / parsed.points).open("xb") as file:
                await _receive(file, pieces, parsed.size, self._stall_seconds)
            await self._indexes.load(spec, directory, _check_no_index)
            return parsed.contents

    async def _check_absent(self, tenant: str, name: str) -> None:
        try:
            found = await self._indexes.get(tenant, name)
        except NotFound:
            return
        await _check_no_index(found)

    @contextlib.asynccontextmanager
    async def _temporary_directory(self) -> AsyncIterator[Path]:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            await asyncio.to_thread(self._remove_abandoned)
            directory = Path(tempfile.mkdtemp(dir=self._directory))
        except OSError as error:
            raise Unavailable("A snapshot cannot be created on the retriever's disk.") from error
        try:
            yield directory
        except OSError as error:
            raise Unavailable("The snapshot cannot be written or read on the retriever's disk.") from error
        finally:
            shutil.rmtree(directory, ignore_errors=True)

    def _remove_abandoned(self) -> None:
        """Remove the temporary directories that terminated processes have left behind."""
        for directory in self._directory.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another process removes it, too
                if directory.stat().st_mtime < time.time() - _ABANDONED_SECONDS:
                    shutil.rmtree(directory, ignore_errors=True)


class _Stall:
    """Releases the resources of a snapshot if its client takes too long to receive a message.

    A generator cannot end while the client holds it up: it waits in a ``yield`` until the client's deadline.
    """

    def __init__(self, resources: contextlib.AsyncExitStack, seconds: float) -> None:
        self._resources = resources
        self._seconds = seconds
        self._releasing: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def limited(self) -> Iterator[None]:
        """Limit the time of the block.

        Raises:
            DeadlineExceeded: The block took too long, and the resources are released.
        """
        timer = asyncio.get_running_loop().call_later(self._seconds, self._release)
        try:
            yield
        finally:
            timer.cancel()
        if self._releasing is not None:
            raise DeadlineExceeded(f"The client received nothing for {self._seconds:g} s. Repeat the backup.")

    def _release(self) -> None:
        self._releasing = asyncio.create_task(self._resources.aclose())


async def _receive(file: BinaryIO, pieces: AsyncIterator[bytes], size: int, seconds: float) -> None:
    received = 0
    while True:
        try:
            async with asyncio.timeout(seconds):
                piece = await anext(pieces, None)
        except TimeoutError as error:
            raise DeadlineExceeded(f"The client sent nothing for {seconds:g} s. Repeat the restore.") from error
        if piece is None:
            break
        received += len(piece)
        if received > size:
            raise InvalidRequest("The snapshot is longer than its manifest states.", field="points")
        await asyncio.to_thread(file.write, piece)
    if received < size:
        raise InvalidRequest("The snapshot is truncated.", field="points")


async def _check_no_index(existing: Index | None) -> None:
    if existing is not None:
        raise Conflict(f"Index '{existing.spec.name}' exists already.", resource=existing.spec.name)
