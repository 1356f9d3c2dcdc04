"""Reads snapshots (`storage.snapshot_writer`) and checks them, because they may be damaged or forged.

The functions block: call them from a thread or a child process.
"""

import array
import hashlib
import itertools
import math
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
from servicekit import keys
from servicekit.errors import CausewayError, InvalidRequest

from retriever.domain.document import Chunk, Document
from retriever.domain.fields import check_document
from retriever.domain.index import IndexSpec
from retriever.domain.language import AUTO, LANGUAGES, LEGACY
from retriever.ports.store import ChunkPoint, Terms
from retriever.storage.snapshot_writer import (
    KIND,
    MANIFEST,
    POINTS,
    PREFIX_BYTES,
    VERSION,
    ChunkEntry,
    Manifest,
    Record,
)

_MAX_FRAME_BYTES = 64 * 1024 * 1024
_MAX_MANIFEST_BYTES = 64 * 1024
_MIN_ENTRY_BYTES = 16  # of a record or a chunk
_UNIT_TOLERANCE = 0.01

_decoder = msgspec.msgpack.Decoder(Record | ChunkEntry)


class NoSnapshot(Exception):
    """The directory does not exist."""


def damaged(why: str) -> InvalidRequest:
    """Return the error for a snapshot that cannot be loaded."""
    return InvalidRequest(f"The snapshot cannot be loaded: {why}.", field="path")


def read_manifest(directory: Path) -> Manifest:
    """Return the manifest of the snapshot in a directory.

    Raises:
        NoSnapshot: The directory does not exist.
        InvalidRequest: The directory has no snapshot, or one of another format.
    """
    if not directory.exists():
        raise NoSnapshot
    try:
        with _open(directory / MANIFEST) as file:
            raw = file.read(_MAX_MANIFEST_BYTES)
        manifest = msgspec.json.decode(raw, type=Manifest)
    except (OSError, ValueError, RecursionError) as error:
        raise damaged("its manifest is missing or cannot be read") from error
    if manifest.kind != KIND or not POINTS.fullmatch(manifest.points):
        raise damaged("it is not a snapshot of an index")
    if manifest.version != VERSION:
        raise damaged(f"its format has version {manifest.version}, but this service reads version {VERSION}")
    if not manifest.embedding_model or manifest.dimension < 1 or manifest.documents < 0 or manifest.chunks < 0:
        raise damaged("its manifest is wrong")
    if manifest.language not in LANGUAGES | {AUTO, LEGACY}:
        raise damaged("it has a language that this service does not know")
    return manifest


def read(directory: Path, manifest: Manifest, spec: IndexSpec) -> Iterator[tuple[Document, ChunkPoint | None]]:
    """Yield each record with None, then each chunk with its document. Chunk ids are computed for ``spec``.

    The checksum is verified at the end. Do not use the items until the iterator has ended.

    Raises:
        InvalidRequest: The snapshot is damaged.
    """
    try:
        with _open(directory / manifest.points) as file:
            if os.fstat(file.fileno()).st_size != manifest.size:
                raise damaged("it is truncated")
            if (manifest.documents + manifest.chunks) * _MIN_ENTRY_BYTES > manifest.size:
                raise damaged("its numbers of documents and chunks are wrong")
            yield from _checked(_frames(file, manifest), manifest, spec)
    except OSError as error:
        raise damaged("its points cannot be read") from error


def _frames(file: BinaryIO, manifest: Manifest) -> Iterator[Record | ChunkEntry]:
    digest = hashlib.sha256()
    size = 0
    while prefix := file.read(PREFIX_BYTES):
        length = int.from_bytes(prefix, "big")
        body = file.read(min(length, _MAX_FRAME_BYTES))
        if len(prefix) < PREFIX_BYTES or len(body) < length:
            raise damaged("it is truncated")
        digest.update(prefix)
        digest.update(body)
        size += PREFIX_BYTES + length
        try:
            yield _decoder.decode(body)
        except (ValueError, RecursionError) as error:
            raise damaged("it contains data that is neither a record nor a chunk") from error
    if size != manifest.size or digest.hexdigest() != manifest.sha256:
        raise damaged("its checksum is wrong")


def _checked(
    entries: Iterable[Record | ChunkEntry], manifest: Manifest, spec: IndexSpec
) -> Iterator[tuple[Document, ChunkPoint | None]]:
    """Check the entries as an upsert would. The checksum does not prove that they are valid."""
    collection = keys.collection(spec.tenant, spec.name)
    documents: dict[str, Document] = {}
    missing: dict[str, set[int]] = {}
    chunks = 0
    for entry in entries:
        if isinstance(entry, Record):
            document = entry.document
            if document.document_id in documents:
                raise damaged("it contains a document twice")
            if chunks + document.chunk_count > manifest.chunks:
                raise damaged("its numbers of documents and chunks are wrong")
            _check(document)
            documents[document.document_id] = document
            chunks += document.chunk_count
            missing[document.document_id] = set(range(document.chunk_count))
            yield document, None
        else:
            if entry.document_id not in documents or entry.number not in missing[entry.document_id]:
                raise damaged("it has a chunk without a document")
            document = documents[entry.document_id]
            missing[entry.document_id].remove(entry.number)
            yield document, _point(collection, document, entry, spec.dimension)
    if chunks != manifest.chunks or len(documents) != manifest.documents or any(missing.values()):
        raise damaged("its numbers of documents and chunks are wrong")


def _check(document: Document) -> None:
    try:
        check_document(document)
    except CausewayError as error:
        raise damaged("one of its records is wrong") from error
    if document.text_language and document.text_language not in LANGUAGES:
        raise damaged("it has a document in a language that this service does not know")
    numbers = ((document.generation, 64), (document.size_bytes, 64), (document.page_count, 32))
    if document.chunk_count < 0 or not all(_is_unsigned(number, bits) for number, bits in numbers):
        raise damaged("one of its records is wrong")


def _point(collection: str, document: Document, entry: ChunkEntry, dimension: int) -> ChunkPoint:
    vector = _from_bytes(entry.vector)
    # This also excludes NaN and infinity.
    is_unit = len(vector) == dimension and abs(math.hypot(*vector) - 1) <= _UNIT_TOLERANCE
    if not is_unit or not _is_sparse_vector(entry.indices, entry.weights):
        raise damaged("one of its vectors is wrong")
    if not _is_unsigned(entry.page, 32) or not 0 <= entry.overlap <= len(entry.text):
        raise damaged("one of its chunks is wrong")
    chunk = Chunk(
        entry.number,
        entry.text,
        entry.indexed_text,
        entry.page,
        entry.headings,
        vector,
        entry.overlap,
        entry.separator,
    )
    id_ = keys.point_id(collection, document.document_id, document.generation, chunk.number, chunk.text)
    return ChunkPoint(str(id_), chunk, Terms(entry.indices, entry.weights))


def _is_sparse_vector(indices: list[int], weights: list[float]) -> bool:
    return (
        len(indices) == len(weights)
        and all(_is_unsigned(index, 32) for index in indices)
        and all(index < following for index, following in itertools.pairwise(indices))
        and all(map(math.isfinite, weights))
    )


def _is_unsigned(number: int, bits: int) -> bool:
    return 0 <= number < 1 << bits


def _from_bytes(raw: bytes) -> list[float]:
    numbers = array.array("f")
    if len(raw) % numbers.itemsize:
        return []
    numbers.frombytes(raw)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def _open(path: Path) -> BinaryIO:
    """Open a file. Refuse a symbolic link, which may point outside the directory."""
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb")
