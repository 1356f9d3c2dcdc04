"""How long a search takes while the index is idle, while documents come in, and while it is rebuilt.

A retriever of its own, as a process with the bundled embedding model, is searched over gRPC by one client that asks
again as soon as it has its answer. ``python bench/bench_retrieval.py [--chunks 1000 20000] [--results DIRECTORY]``
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

from causeway.retriever.v1 import document_pb2, retriever_pb2, retriever_pb2_grpc
from load import percentile
from servicekit.channel import open_channel
from servicekit.principal import LOCAL
from servicekit.testing import free_ports

INDEX = "bench"
MODEL, DIMENSION = "all-minilm-l6-v2", 384
DOCUMENT = 20  # chunks
APPENDED = 1000  # documents
APPENDED_CHUNKS = 2
IDLE_SECONDS = 5.0
_MESSAGE = 64
SERVICE = retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"]
ME = LOCAL.to_proto()
WORDS = [
    f"{syllable}{number}" for syllable in ("har", "pon", "quay", "lock", "tide", "mole") for number in range(500)
]


@dataclass(frozen=True, slots=True)
class Row:
    """Searches of one phase; milliseconds."""

    chunks: int
    phase: str
    searches: int
    p50: float
    p99: float
    longest: float


def vector(source: random.Random) -> list[float]:
    """A direction."""
    numbers = [source.gauss(0, 1) for _ in range(DIMENSION)]
    length = sum(number * number for number in numbers) ** 0.5
    return [number / length for number in numbers]


def messages(source: random.Random, name: str, count: int) -> Iterator[retriever_pb2.UpsertRequest]:
    """The upsert of a document of so many chunks of 100 words."""
    document = document_pb2.Document(document_id=name, sourcefile=f"{name}.pdf", generation=1)
    yield retriever_pb2.UpsertRequest(
        begin=retriever_pb2.UpsertBegin(
            principal=ME, index=INDEX, document=document, embedding_model=MODEL, dimension=DIMENSION
        )
    )
    for start in range(0, count, _MESSAGE):
        chunks = []
        for number in range(start, min(start + _MESSAGE, count)):
            text = " ".join(source.choices(WORDS, k=100))
            chunks.append(document_pb2.Chunk(number=number, text=text, indexed_text=text, vector=vector(source)))
        yield retriever_pb2.UpsertRequest(chunks=retriever_pb2.UpsertChunks(chunks=chunks))
    yield retriever_pb2.UpsertRequest(commit=retriever_pb2.UpsertCommit(chunk_count=count))


@asynccontextmanager
async def retriever() -> AsyncIterator[Any]:
    """A retriever over an empty store, and its stub."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as directory:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "retriever",
            env={**os.environ, "CAUSEWAY_DATA_DIR": directory, "CAUSEWAY_RETRIEVER_PORT": str(port)},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            async with open_channel(f"127.0.0.1:{port}", [SERVICE]) as channel:
                await asyncio.wait_for(channel.channel_ready(), 60)
                yield retriever_pb2_grpc.RetrieverServiceStub(channel)
        finally:
            process.terminate()
            await process.wait()


async def search(stub: Any, source: random.Random, until: asyncio.Event) -> list[float]:
    """Searches one after the other; the time of each in milliseconds."""
    times = []
    while not until.is_set():
        query = " ".join(source.choices(WORDS, k=8))
        request = retriever_pb2.RetrieveRequest(principal=ME, indexes=[INDEX], query=query, top=10)
        begin = time.perf_counter()
        response = await stub.Retrieve(request)
        times.append((time.perf_counter() - begin) * 1000)
        assert len(response.passages) == 10
    return times


Upsert = list[retriever_pb2.UpsertRequest]


def documents(source: random.Random, prefix: str) -> list[Upsert]:
    """Documents to append, made beforehand: that must not hold up who searches."""
    return [list(messages(source, f"{prefix}{number}", APPENDED_CHUNKS)) for number in range(APPENDED)]


async def append(stub: Any, upserts: list[Upsert]) -> None:
    """Stores documents one after the other."""
    for upsert in upserts:
        await stub.Upsert(iter(upsert))


async def phase(stub: Any, chunks: int, name: str, *work: Any) -> tuple[Row, float]:
    """Searches while the work is done, or for some seconds; and how long that was."""
    until = asyncio.Event()
    searching = asyncio.create_task(search(stub, random.Random(name), until))
    begin = time.perf_counter()
    await asyncio.gather(*(work or [asyncio.sleep(IDLE_SECONDS)]))
    seconds = time.perf_counter() - begin
    until.set()
    times = await searching
    row = Row(chunks, name, len(times), percentile(times, 0.5), percentile(times, 0.99), max(times))
    sys.stdout.write(
        f"{chunks:>7} chunks  {name:<44} {len(times):>6} searches  p50 {row.p50:7.2f} ms  p99 {row.p99:7.2f} ms  "
        f"longest {row.longest:7.1f} ms  {seconds:6.1f} s\n"
    )
    sys.stdout.flush()
    return row, seconds


async def measure(chunks: int) -> list[dict[str, Any]]:
    """All phases over an index of one size."""
    source = random.Random(chunks)
    compact = retriever_pb2.CompactIndexRequest(principal=ME, index=INDEX)
    async with retriever() as stub:
        for number in range(chunks // DOCUMENT):
            await stub.Upsert(iter(list(messages(source, f"d{number}", DOCUMENT))))
        first, second = documents(source, "a"), documents(source, "b")
        rows = [
            await phase(stub, chunks, "idle"),
            await phase(stub, chunks, "1,000 documents come in", append(stub, first)),
            await phase(
                stub,
                chunks,
                "1,000 come in, and it is compacted",
                append(stub, second),
                stub.CompactIndex(compact),
            ),
            await phase(stub, chunks, "idle, compacted"),
        ]
    idle = rows[0][0].p99
    return [{**asdict(row), "seconds": seconds, "p99_of_idle": row.p99 / idle} for row, seconds in rows]


def page(result: dict[str, Any]) -> str:
    """The results as a page."""
    lines = [
        "# Searching while other things go on",
        "",
        f"{result['date']}, {result['machine']}. One retriever process with the bundled embedding model; a client "
        "over gRPC asks for 10 passages (hybrid) again and again. A document that comes in has "
        f"{APPENDED_CHUNKS} chunks of 100 words. Client and retriever share the machine.",
        "",
        "| chunks | meanwhile | searches | p50 ms | p99 ms | longest ms | p99 of idle's | seconds |",
        "|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {row['chunks']} | {row['phase']} | {row['searches']} | {row['p50']:.2f} | {row['p99']:.2f} | "
        f"{row['longest']:.1f} | {row['p99_of_idle']:.2f} | {row['seconds']:.1f} |"
        for row in result["rows"]
    ]
    return "\n".join([*lines, ""])


def main() -> int:
    """Measures, prints, and writes retrieval.json and retrieval.md."""
    parser = argparse.ArgumentParser(description="Searches while an index is idle, written to, and compacted.")
    parser.add_argument("--chunks", type=int, nargs="+", default=[1000, 20_000], help="sizes of the index")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results", metavar="DIRECTORY")
    options = parser.parse_args()
    rows = [row for chunks in options.chunks for row in asyncio.run(measure(chunks))]
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    result = {"date": datetime.now(UTC).date().isoformat(), "machine": machine, "rows": rows}
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "retrieval.json").write_text(json.dumps(result, indent=1) + "\n")
    (options.results / "retrieval.md").write_text(page(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
