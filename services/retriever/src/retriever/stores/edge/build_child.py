"""The child process that builds shards and snapshots: ``python -m retriever.stores.edge.build_child``.

It reads one `Job` from stdin and writes one `Done` or `Refused` to stdout. A job keeps the engine busy for
seconds and would block the serving process. The child reads a copy of a shard, and builds in a separate directory.
The parent then moves the result into place or removes it.
"""

import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path

import msgspec
import qdrant_edge as edge
from servicekit import keys
from servicekit.child_program import response_stream
from servicekit.errors import InvalidRequest

from retriever.domain.document import Document
from retriever.domain.index import Contents, IndexSpec
from retriever.domain.scope import EVERYTHING
from retriever.storage import files, snapshot_reader, snapshot_writer
from retriever.stores import payload
from retriever.stores.edge import payload_indexes, schema
from retriever.stores.vector_storage import VectorStorage

_BATCH = 256
_NICE = 10  # the child gets a tenth of the CPU time that a search on the same core gets


class Job(msgspec.Struct, frozen=True):
    """A shard or snapshot to build.

    Attributes:
        kind: ``compact`` and ``persist`` read the copy of a shard, ``restore`` reads a snapshot. ``persist`` writes
            a snapshot, the other jobs write a shard.
        source: Directory to read.
        target: Directory to write. It must not exist for a shard, and may exist for a snapshot.
        spec: The specification of the written index.
        vectors: The storage of the dense vectors, in the source and in the target.
        exact_up_to: Maximum number of chunks of a shard that is built without a graph (HNSW).
        seconds: Maximum CPU time.
    """

    kind: str
    source: str
    target: str
    spec: IndexSpec
    vectors: VectorStorage
    exact_up_to: int
    seconds: int


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The result of a successful build. ``points`` is the number of points of the shard, 0 for a snapshot."""

    points: int
    contents: Contents


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The snapshot cannot be loaded. The message is for the client."""

    message: str


def compact(job: Job) -> Done:
    """Build a new shard with the points of an existing shard."""
    source = edge.EdgeShard.load(job.source, schema.config(job.spec.dimension, job.vectors))
    points = (schema.copied(record) for record in _records(source, edge.Filter()))
    done = _build(
        job, points, source.count(edge.CountRequest(filter=schema.scope_filter(EVERYTHING, payload.CHUNK)))
    )
    source.close()
    return done


def persist(job: Job) -> Done:
    """Write a snapshot of the documents in a shard's catalogue. Omit marks, and chunks of other generations."""
    shard = edge.EdgeShard.load(job.source, schema.config(job.spec.dimension, job.vectors))
    documents: dict[str, Document] = {}
    with snapshot_writer.Writer(Path(job.target), job.spec) as writer:
        for point in _records(shard, schema.scope_filter(EVERYTHING, payload.DOCUMENT), with_vector=False):
            document = payload.decode_record(point.payload or {})
            documents[document.document_id] = document
            writer.record(document)
        for document in documents.values():
            for point in _records(shard, schema.chunks_of_version(document.version)):
                found = schema.chunk_point(point)
                writer.chunk(document.document_id, found.chunk, found.terms)
        shard.close()
        contents = writer.commit()
    return Done(0, contents)


def restore(job: Job) -> Done:
    """Build a new shard from a snapshot."""
    directory = Path(job.source)
    manifest = snapshot_reader.read_manifest(directory)
    return _build(job, _restored(directory, manifest, job.spec), manifest.chunks)


def _restored(directory: Path, manifest: snapshot_writer.Manifest, spec: IndexSpec) -> Iterator[edge.Point]:
    collection = keys.collection(spec.tenant, spec.name)
    for document, point in snapshot_reader.read(directory, manifest, spec):
        if point is None:
            yield schema.record_point(keys.document_point_id(collection, document.document_id), document)
        else:
            yield from schema.chunk_points(document, [point])


def _build(job: Job, points: Iterable[edge.Point], chunks: int) -> Done:
    target = Path(job.target)
    target.mkdir(parents=True)
    # With a configuration for binary quantization, the engine would also quantize small shards without a graph.
    config = schema.config_without_graph(job.spec.dimension)
    if chunks > job.exact_up_to:
        config = schema.config(job.spec.dimension, job.vectors, job.exact_up_to)
    shard = edge.EdgeShard.create(str(target), config)
    source = iter(points)
    while batch := list(islice(source, _BATCH)):
        shard.update(edge.UpdateOperation.upsert_points(batch))
    for operation in payload_indexes.missing(shard):
        shard.update(operation)
    shard.optimize()
    shard.flush()
    count = shard.info().points_count
    documents, chunks = [
        shard.count(edge.CountRequest(filter=schema.scope_filter(EVERYTHING, kind)))
        for kind in (payload.DOCUMENT, payload.CHUNK)
    ]
    shard.close()
    files.sync_tree(target)
    return Done(count, Contents(documents, chunks))


def _records(shard: edge.EdgeShard, filter_: edge.Filter, *, with_vector: bool = True) -> Iterator[edge.Record]:
    offset: edge.PointId | None = None
    while True:
        points, offset = shard.scroll(
            edge.ScrollRequest(
                offset=offset, limit=_BATCH, filter=filter_, with_payload=True, with_vector=with_vector
            )
        )
        yield from points
        if offset is None:
            return


_KINDS: dict[str, Callable[[Job], Done]] = {"compact": compact, "persist": persist, "restore": restore}


def main() -> int:
    """Run one job and return the exit code. Errors are written to stderr."""
    out = response_stream()
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Job)
    _limit(job)
    result: Done | Refused
    try:
        result = _KINDS[job.kind](job)
    except InvalidRequest as error:
        result = Refused(error.message)
    out.write(msgspec.json.encode(result))
    out.flush()
    return 0


def _limit(job: Job) -> None:
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_CPU, (job.seconds, job.seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    sys.exit(main())
