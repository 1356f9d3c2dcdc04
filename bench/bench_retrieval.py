"""Benchmark of search latency on an idle index, during ingestion, and during a rebuild.

One client, in one phase eight clients, searches a retriever process with the bundled embedding model over gRPC. A
client sends the next request when it has the response. Then this process runs text searches with the engine alone,
on the same files.

Usage: python bench/bench_retrieval.py [--chunks 1000 20000 100000] [--results DIRECTORY]
"""

import argparse
import asyncio
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import qdrant_edge as edge
from causeway.retriever.v1 import document_pb2, retriever_pb2, retriever_pb2_grpc
from causeway_testing.servers import free_ports
from load import percentile
from retriever.stores import payload
from retriever.stores.edge import schema as edge_schema
from retriever.stores.vector_storage import VectorStorage
from servicekit.channel import open_channel
from servicekit.principal import LOCAL

INDEX = "bench"
MODEL, DIMENSION = "all-minilm-l6-v2", 384
DOCUMENT_CHUNKS = 20
APPENDED_DOCUMENTS = 150
APPENDED_CHUNKS = 2
IDLE_SECONDS = 5.0
CLIENTS = 8
WRITERS = 4
CANDIDATES = 50
LARGE_INDEX = 10_000  # chunks. In a smaller index, most of the memory does not depend on the chunks
_CHUNKS_A_MESSAGE = 64
SERVICE = retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"]
ME = LOCAL.to_proto()
WORDS = [
    f"{syllable}{number}" for syllable in ("har", "pon", "quay", "lock", "tide", "mole") for number in range(500)
]


WORDS_ONLY = {"mode": retriever_pb2.RETRIEVAL_MODE_TEXT, "skip_missing_scores": True}


@dataclass(frozen=True, slots=True)
class Retriever:
    """A running retriever: its gRPC stub, its process id and the directory of its store."""

    stub: Any
    pid: int
    store: Path

    def memory(self) -> float:
        """Return the resident memory of the process in MiB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


@dataclass(frozen=True, slots=True)
class Row:
    """The search times of one phase, in milliseconds."""

    chunks: int
    phase: str
    searches: int
    p50: float
    p99: float
    longest: float


def vectors(source: random.Random, count: int) -> list[list[float]]:
    """Return random unit vectors."""
    numbers = np.random.default_rng(source.randrange(2**32)).standard_normal((count, DIMENSION), dtype=np.float32)
    directions: list[list[float]] = (numbers / np.linalg.norm(numbers, axis=1, keepdims=True)).tolist()
    return directions


def messages(source: random.Random, name: str, count: int) -> Iterator[retriever_pb2.UpsertRequest]:
    """Yield the upsert messages of a document with a number of chunks of 100 words."""
    document = document_pb2.Document(document_id=name, sourcefile=f"{name}.pdf", generation=1)
    yield retriever_pb2.UpsertRequest(
        begin=retriever_pb2.UpsertBegin(
            principal=ME, index=INDEX, document=document, embedding_model=MODEL, dimension=DIMENSION
        )
    )
    for start in range(0, count, _CHUNKS_A_MESSAGE):
        chunks = []
        numbers = range(start, min(start + _CHUNKS_A_MESSAGE, count))
        for number, direction in zip(numbers, vectors(source, len(numbers)), strict=True):
            text = " ".join(source.choices(WORDS, k=100))
            chunks.append(document_pb2.Chunk(number=number, text=text, indexed_text=text, vector=direction))
        yield retriever_pb2.UpsertRequest(chunks=retriever_pb2.UpsertChunks(chunks=chunks))
    yield retriever_pb2.UpsertRequest(commit=retriever_pb2.UpsertCommit(chunk_count=count))


@asynccontextmanager
async def retriever(directory: Path, **environment: str) -> AsyncIterator[Retriever]:
    """Run a retriever over the store in a directory, with these settings."""
    (port,) = free_ports(1)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "retriever",
        env={
            **os.environ,
            "CAUSEWAY_DATA_DIR": str(directory),
            "CAUSEWAY_RETRIEVER_PORT": str(port),
            **environment,
        },
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with open_channel(f"127.0.0.1:{port}", [SERVICE]) as channel:
            await asyncio.wait_for(channel.channel_ready(), 60)
            stub = retriever_pb2_grpc.RetrieverServiceStub(channel)
            yield Retriever(stub, process.pid, directory / "retriever")
    finally:
        process.terminate()
        await process.wait()


async def search(
    stub: Any, source: random.Random, until: asyncio.Event, search_options: dict[str, Any] | None = None
) -> list[float]:
    """Search in sequence, and return the time of each search in milliseconds."""
    times = []
    while not until.is_set():
        query = " ".join(source.choices(WORDS, k=8))
        request = retriever_pb2.RetrieveRequest(
            principal=ME, indexes=[INDEX], query=query, top=10, **(search_options or {})
        )
        begin = time.perf_counter()
        response = await stub.Retrieve(request)
        times.append((time.perf_counter() - begin) * 1000)
        assert len(response.passages) == 10
    return times


Upsert = list[retriever_pb2.UpsertRequest]


def documents(source: random.Random, prefix: str) -> list[Upsert]:
    """Return documents to append. They are created in advance, so that their creation does not delay searches."""
    return [list(messages(source, f"{prefix}{number}", APPENDED_CHUNKS)) for number in range(APPENDED_DOCUMENTS)]


async def append(stub: Any, upserts: list[Upsert]) -> None:
    """Store documents in sequence."""
    for upsert in upserts:
        await stub.Upsert(iter(upsert))


async def phase(
    stub: Any, chunks: int, name: str, *work: Any, search_options: dict[str, Any] | None = None, clients: int = 1
) -> tuple[Row, float]:
    """Search while the work runs, or for some seconds; return the search times and the duration."""
    until = asyncio.Event()
    searching = asyncio.gather(
        *(search(stub, random.Random(f"{name}{number}"), until, search_options) for number in range(clients))
    )
    begin = time.perf_counter()
    await asyncio.gather(*(work or [asyncio.sleep(IDLE_SECONDS)]))
    seconds = time.perf_counter() - begin
    until.set()
    times = [each for times in await searching for each in times]
    return report_phase(chunks, name, times, seconds), seconds


def report_phase(chunks: int, name: str, times: list[float], seconds: float) -> Row:
    """Print the figures of a phase, and return them as a row; ``times`` are in milliseconds."""
    row = Row(chunks, name, len(times), percentile(times, 0.5), percentile(times, 0.99), max(times))
    sys.stdout.write(
        f"{chunks:>7} chunks  {name:<44} {len(times):>6} searches  p50 {row.p50:7.2f} ms  p99 {row.p99:7.2f} ms  "
        f"longest {row.longest:7.1f} ms  {seconds:6.1f} s  {len(times) / seconds:6.0f}/s\n"
    )
    sys.stdout.flush()
    return row


def engine_alone(store: Path, chunks: int) -> tuple[Row, float]:
    """Run the retriever's text search on the engine itself in this process."""
    (shard_directory,) = store.glob("*/[0-9]*")
    shard = edge.EdgeShard.load(str(shard_directory), edge_schema.config(DIMENSION, VectorStorage()))
    model, source, times = edge.Bm25(), random.Random("engine"), []
    begin = time.perf_counter()
    while time.perf_counter() < begin + IDLE_SECONDS:
        query = " ".join(source.choices(WORDS, k=8))
        started = time.perf_counter()
        nearest = edge.Query.Nearest(model.embed_query(query), using=payload.SPARSE)
        found = shard.query(edge.QueryRequest(limit=CANDIDATES, query=nearest, with_payload=False))
        passages = shard.retrieve([each.id for each in found[:10]], with_payload=True, with_vector=False)
        times.append((time.perf_counter() - started) * 1000)
        assert len(passages) == 10
    seconds = time.perf_counter() - begin
    shard.close()
    return report_phase(chunks, "the engine alone, by words", times, seconds), seconds


async def fill(stub: Any, source: random.Random, count: int) -> None:
    """Store a number of chunks with concurrent writers."""
    numbers = iter(range(count // DOCUMENT_CHUNKS))

    async def write() -> None:
        for number in numbers:
            await stub.Upsert(iter(list(messages(source, f"d{number}", DOCUMENT_CHUNKS))))

    await asyncio.gather(*(write() for _ in range(WRITERS)))


async def measure(chunks: int) -> dict[str, Any]:
    """Run all phases on an index of one size."""
    source = random.Random(chunks)
    compact = retriever_pb2.CompactIndexRequest(principal=ME, index=INDEX)
    with tempfile.TemporaryDirectory() as directory:
        async with retriever(Path(directory)) as running:
            stub, empty = running.stub, running.memory()
            begin = time.perf_counter()
            await fill(stub, source, chunks)
            fill_seconds = time.perf_counter() - begin
            memory = (running.memory() - empty) * 100_000 / chunks
            first, second = documents(source, "a"), documents(source, "b")
            rows = [
                await phase(stub, chunks, "idle"),
                await phase(stub, chunks, f"{CLIENTS} clients at once", clients=CLIENTS),
                await phase(stub, chunks, f"{APPENDED_DOCUMENTS} documents come in", append(stub, first)),
                await phase(
                    stub,
                    chunks,
                    f"{APPENDED_DOCUMENTS} come in, and it is compacted",
                    append(stub, second),
                    stub.CompactIndex(compact),
                ),
                await phase(stub, chunks, "idle, compacted"),
                await phase(stub, chunks, "idle, compacted, by words", search_options=WORDS_ONLY),
            ]
            compacted = (running.memory() - empty) * 100_000 / chunks
        rows.append(engine_alone(Path(directory) / "retriever", chunks))
    idle = rows[0][0].p99
    size = {
        "chunks": chunks,
        "chunks_a_second": chunks / fill_seconds,
        "megabytes_per_100k": memory,
        "megabytes_per_100k_compacted": compacted,
        "over_the_engine_ms": rows[-2][0].p50 - rows[-1][0].p50,
    }
    row_objects = [{**asdict(row), "seconds": seconds, "p99_of_idle": row.p99 / idle} for row, seconds in rows]
    return {"size": size, "rows": row_objects}


def page(result: dict[str, Any]) -> str:
    """Return the results as Markdown."""
    lines = [
        "# Search times during other work",
        "",
        f"{result['date']}, {result['machine']}. One retriever process with the bundled embedding model; a client "
        "sends hybrid searches for 10 passages over gRPC, one after another. A new document has "
        f"{APPENDED_CHUNKS} chunks of 100 words. Client and retriever share the machine.",
        "",
        "| chunks | other work | searches | per second | p50 ms | p99 ms | longest ms | p99 relative to idle | "
        "seconds |",
        "|--:|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {row['chunks']} | {row['phase']} | {row['searches']} | {row['searches'] / row['seconds']:.0f} | "
        f"{row['p50']:.2f} | {row['p99']:.2f} | {row['longest']:.1f} | {row['p99_of_idle']:.2f} | "
        f"{row['seconds']:.1f} |"
        for row in result["rows"]
    ]
    lines += [
        "",
        "A search by words embeds no query. Its p50 minus that of the engine alone is the time that the "
        "retriever adds, for gRPC, records, access lists and passages. Memory is the increase since the start "
        "with an empty store, for 100,000 chunks. The engine maps its files, so the system can reclaim most of "
        "this memory.",
        "",
        "| chunks | stored per second | added to the engine ms | MiB per 100,000 chunks | MiB, compacted |",
        "|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {size['chunks']} | {size['chunks_a_second']:.0f} | {size['over_the_engine_ms']:.2f} | "
        f"{size['megabytes_per_100k']:.0f} | {size['megabytes_per_100k_compacted']:.0f} |"
        if size["chunks"] >= LARGE_INDEX
        else f"| {size['chunks']} | {size['chunks_a_second']:.0f} | {size['over_the_engine_ms']:.2f} | | |"
        for size in result["sizes"]
    ]
    return "\n".join([*lines, ""])


def main() -> int:
    """Run the benchmark, and write retrieval.json and retrieval.md."""
    parser = argparse.ArgumentParser(
        description="Measure searches in an idle index, during writes, and during a compaction."
    )
    parser.add_argument("--chunks", type=int, nargs="+", default=[1000, 20_000, 100_000], help="sizes of the index")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", metavar="DIRECTORY")
    options = parser.parse_args()
    rows: list[Any] = []
    sizes: list[Any] = []
    options.results.mkdir(parents=True, exist_ok=True)
    for chunks in options.chunks:
        measured = asyncio.run(measure(chunks))
        rows += measured["rows"]
        sizes.append(measured["size"])
        load = f"{os.getloadavg()[2]:.0f}"
        machine = (
            f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, load {load} in the "
            "last 15 minutes"
        )
        date = datetime.now(UTC).date().isoformat()
        result = {"date": date, "machine": machine, "rows": rows, "sizes": sizes}
        (options.results / "retrieval.json").write_text(json.dumps(result, indent=1) + "\n")
        (options.results / "retrieval.md").write_text(page(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
