"""Backup and restore of the indexes of all tenants as snapshots, for the operator."""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import BinaryIO

from embedding.models import EmbeddingModels
from servicekit.errors import Conflict, InvalidRequest, NotFound, Unavailable

from retriever.domain.index import Contents, IndexSpec
from retriever.indexes.lifecycle import Indexes
from retriever.indexes.open_index import Index
from retriever.indexes.snapshots import check_vectors
from retriever.storage import snapshot_reader
from retriever.storage.snapshot_writer import MANIFEST

_PIECE_BYTES = 256 * 1024
_MAX_MANIFEST_BYTES = 64 * 1024


class Backups:
    """Streams snapshots. A snapshot is on the disk only while it is sent or received.

    Args:
        indexes: The indexes.
        directory: Directory for the snapshots, created for the first snapshot.
        models: The configured models. Snapshots with vectors of another model are refused.
    """

    def __init__(self, indexes: Indexes, directory: Path, models: EmbeddingModels) -> None:
        self._indexes = indexes
        self._directory = directory
        self._models = models
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
            RateLimited: Too many snapshots wait.
        """
        index = await self._indexes.get(tenant, name)
        async with self._lock, self._temporary_directory() as directory:
            await index.collection.persist(directory)
            manifest = await asyncio.to_thread((directory / MANIFEST).read_bytes)
            points = directory / snapshot_reader.read_manifest(directory).points
            yield manifest
            with points.open("rb") as file:
                while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
                    yield piece

    async def restore(self, tenant: str, name: str, manifest: bytes, pieces: AsyncIterator[bytes]) -> Contents:
        """Create an index from a snapshot and return its numbers of documents and chunks.

        Raises:
            Conflict: An index with this name exists.
            InvalidRequest: The snapshot is damaged or incomplete, or its embedding model is not configured.
            Unavailable: The restore failed; nothing changed.
            RateLimited: Too many restores wait.
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
                await _receive(file, pieces, parsed.size)
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
            directory = Path(tempfile.mkdtemp(dir=self._directory))
        except OSError as error:
            raise Unavailable("A snapshot cannot be created on the retriever's disk.") from error
        try:
            yield directory
        except OSError as error:
            raise Unavailable("The snapshot cannot be written or read on the retriever's disk.") from error
        finally:
            shutil.rmtree(directory, ignore_errors=True)


async def _receive(file: BinaryIO, pieces: AsyncIterator[bytes], size: int) -> None:
    received = 0
    async for piece in pieces:
        received += len(piece)
        if received > size:
            raise InvalidRequest("The snapshot is longer than its manifest states.", field="points")
        await asyncio.to_thread(file.write, piece)
    if received < size:
        raise InvalidRequest("The snapshot is truncated.", field="points")


async def _check_no_index(existing: Index | None) -> None:
    if existing is not None:
        raise Conflict(f"Index '{existing.spec.name}' exists already.", resource=existing.spec.name)
