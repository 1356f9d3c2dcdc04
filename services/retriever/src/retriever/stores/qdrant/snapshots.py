"""Writes and reads snapshots (`storage.snapshot_writer`) of indexes on a Qdrant server."""

import asyncio
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path
from typing import Protocol

from retriever.domain.document import Document
from retriever.domain.index import Contents, IndexSpec
from retriever.ports.store import ChunkPoint, Collection
from retriever.storage import snapshot_reader, snapshot_writer

_BATCH = 64

_Entry = tuple[Document, ChunkPoint | None]


class Readable(Collection, Protocol):
    """A collection that returns all its records at once."""

    async def all_records(self) -> list[Document]:
        """Return all records."""
        ...


async def write(collection: Readable, directory: Path) -> Contents:
    """Write a snapshot of the documents in the catalogue, without marks and chunks of other generations."""
    records = await collection.all_records()
    writer = await asyncio.to_thread(snapshot_writer.Writer, directory, collection.spec)
    with writer:
        await asyncio.to_thread(_write_records, writer, records)
        for document in records:
            async for points in collection.points_of(document.version):
                await asyncio.to_thread(_write_chunks, writer, document, points)
        return await asyncio.to_thread(writer.commit)


def _write_records(writer: snapshot_writer.Writer, records: list[Document]) -> None:
    for document in records:
        writer.record(document)


def _write_chunks(writer: snapshot_writer.Writer, document: Document, points: list[ChunkPoint]) -> None:
    for point in points:
        writer.chunk(document.document_id, point.chunk, point.terms)


async def read(collection: Collection, spec: IndexSpec, directory: Path) -> None:
    """Store the content of a snapshot.

    Raises:
        InvalidRequest: The snapshot is damaged. The caller must drop the collection.
    """
    manifest = await asyncio.to_thread(snapshot_reader.read_manifest, directory)
    entries = iter(snapshot_reader.read(directory, manifest, spec))
    while batch := await asyncio.to_thread(_next, entries):
        for document, same in groupby(batch, key=lambda entry: entry[0]):
            points = [point for _, point in same]
            chunks = [point for point in points if point is not None]
            if chunks:
                await collection.add_chunks(document, chunks)
            if len(chunks) < len(points):
                await collection.put_record(document)


def _next(entries: Iterator[_Entry]) -> list[_Entry]:
    return list(islice(entries, _BATCH))
