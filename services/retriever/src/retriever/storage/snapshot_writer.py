"""Writes snapshots: files of an index in a format that does not depend on the store.

::

    <directory>/manifest.json     index, counts, and the checksum of the points
    <directory>/<name>.points     frames of records, then of chunks: length (4 bytes, big-endian), then msgpack

The manifest is replaced by one rename, so a snapshot appears or is replaced atomically. Ids of points are not
stored, because they depend on tenant and index, and a backup may be restored as another index. `snapshot_reader`
reads snapshots.
The methods block: call them from a thread or a child process.
"""

import array
import contextlib
import hashlib
import os
import re
import sys
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Self

import msgspec

from retriever.domain.document import Chunk, Document
from retriever.domain.index import Contents, IndexSettings, IndexSpec
from retriever.domain.language import LEGACY
from retriever.ports.store import Terms
from retriever.storage import files

MANIFEST = "manifest.json"
KIND = "causeway-index"
VERSION = 1
POINTS = re.compile(r"[0-9a-f]{32}\.points")
UNFINISHED = re.compile(rf"{POINTS.pattern}|manifest\.new")
"""Files that a writer leaves if its process dies. The next `Writer` in the directory removes or replaces them."""
PREFIX_BYTES = 4


class Manifest(msgspec.Struct, frozen=True):
    """The manifest of a snapshot. ``sha256`` and ``size`` describe the file ``points``."""

    kind: str
    version: int
    index: str
    embedding_model: str
    dimension: int
    documents: int
    chunks: int
    created_at: datetime
    points: str
    size: int
    sha256: str
    settings: IndexSettings = IndexSettings()
    language: str = LEGACY

    @property
    def contents(self) -> Contents:
        """The numbers of documents and chunks."""
        return Contents(self.documents, self.chunks)


class Record(msgspec.Struct, frozen=True, tag="document"):
    """A frame with a record of the catalogue."""

    document: Document


class ChunkEntry(msgspec.Struct, frozen=True, tag="chunk", omit_defaults=True):
    """A frame with a chunk of a document whose record precedes it."""

    document_id: str
    number: int
    text: str
    indexed_text: str
    vector: bytes  # float32, little-endian
    indices: list[int]
    weights: list[float]
    page: int = 0
    headings: tuple[str, ...] = ()
    overlap: int = 0
    separator: str | None = None


class Writer:
    """Writes one snapshot: records first, then chunks, then `commit`.

    Raises:
        OSError: The snapshot cannot be written.
    """

    def __init__(self, directory: Path, spec: IndexSpec) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._spec = spec
        self._name = f"{uuid.uuid4().hex}.points"
        self._file: BinaryIO = (directory / self._name).open("xb")
        self._digest = hashlib.sha256()
        self._size = self._documents = self._chunks = 0

    def record(self, document: Document) -> None:
        """Write a record of the catalogue."""
        self._write(msgspec.msgpack.encode(Record(document)))
        self._documents += 1

    def chunk(self, document_id: str, chunk: Chunk, terms: Terms) -> None:
        """Write a chunk of the generation that the document's record names."""
        entry = ChunkEntry(
            document_id,
            chunk.number,
            chunk.text,
            chunk.indexed_text,
            _to_bytes(chunk.vector),
            list(terms.indices),
            list(terms.weights),
            chunk.page,
            tuple(chunk.headings),
            chunk.overlap,
            chunk.separator,
        )
        self._write(msgspec.msgpack.encode(entry))
        self._chunks += 1

    def commit(self) -> Contents:
        """Publish the snapshot. It is durable when this returns."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        manifest = Manifest(
            KIND,
            VERSION,
            self._spec.name,
            self._spec.embedding_model,
            self._spec.dimension,
            self._documents,
            self._chunks,
            datetime.now(UTC),
            self._name,
            self._size,
            self._digest.hexdigest(),
            self._spec.settings,
            self._spec.language,
        )
        files.replace(self._directory / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
        self._clear(keep=self._name)
        return manifest.contents

    def __enter__(self) -> Self:
        """Return the writer itself."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Remove the points if `commit` has not closed their file. After that, the manifest may name them."""
        if not self._file.closed:
            with contextlib.suppress(OSError):  # a full disk cannot store the buffer
                self._file.close()
            (self._directory / self._name).unlink()

    def _write(self, body: bytes) -> None:
        frame = len(body).to_bytes(PREFIX_BYTES, "big") + body
        self._file.write(frame)
        self._digest.update(frame)
        self._size += len(frame)

    def _clear(self, keep: str) -> None:
        for path in self._directory.iterdir():
            if POINTS.fullmatch(path.name) and path.name != keep:
                path.unlink()


def _to_bytes(vector: Iterable[float]) -> bytes:
    numbers = array.array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()
