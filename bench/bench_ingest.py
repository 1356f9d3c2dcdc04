"""Benchmark of ingestion: throughput from the upload to a searchable document, compared with embedding alone.

The benchmark first measures the embedding model alone, and then a stack on the same cores.

Usage: python bench/bench_ingest.py [--files 10000] [--seconds 600] [--results DIRECTORY]
"""

import argparse
import asyncio
import json
import os
import platform
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from embedding.cache import default_cache_dir
from embedding.models import EmbeddingModels
from processes import cpu_seconds, memory_mib
from servicekit import keys, nats

THREADS = 2
LONG_DOCUMENTS = 30
LONG_SECTIONS = 40
SECTION_WORDS = 110
FILE_WORDS = 60
EMBEDDED_TEXTS = 1200
FILES_PER_REQUEST = 250
WORDS = (
    *(
        "the",
        "a",
        "of",
        "to",
        "in",
        "harbour",
        "tide",
        "vessel",
        "crew",
        "berth",
        "lock",
        "gate",
        "pilot",
        "signal",
    ),
    *("weather", "notice", "safety", "report", "every", "shall", "must", "before", "after", "under", "during"),
    *("north", "south", "water", "depth", "metre", "hour", "morning", "evening", "inspection", "record", "master"),
    *("engine", "deck", "cargo", "passenger", "ferry", "island", "channel", "buoy", "light", "keeper", "permit"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """The results for one kind of documents.

    Attributes:
        accepted_seconds: Seconds from the first upload until the gateway has accepted all documents.
        seconds: Seconds from the first upload until all documents are searchable.
        alone: Chunks per second of the embedding model alone, with texts of the same lengths.
        share: ``chunks_a_second`` divided by ``alone``.
        cpu_ms: CPU milliseconds per chunk of all processes. `alone_cpu_ms` is the CPU of the embedding model alone.
            Other load on the machine hardly changes their ratio.
        cpu: CPU seconds by process.
    """

    name: str
    documents: int
    chunks: int
    accepted_seconds: float
    seconds: float
    chunks_a_second: float
    alone: float
    share: float
    cpu_ms: float
    alone_cpu_ms: float
    cpu: dict[str, float]


def text(source: random.Random, words: int) -> str:
    """Return sentences of about twelve words."""
    return ". ".join(" ".join(source.choices(WORDS, k=12)).capitalize() for _ in range(words // 12)) + "."


def long_document(source: random.Random, number: int) -> bytes:
    """Return a Markdown document. Each section becomes a chunk."""
    sections = (f"## Part {part}\n\n{text(source, SECTION_WORDS)}\n" for part in range(LONG_SECTIONS))
    return f"# Manual {number}\n\n{''.join(sections)}".encode()


async def embedding_alone(texts: Sequence[str]) -> tuple[float, float]:
    """Embed texts with the model alone; return the texts per second, and the CPU milliseconds per text."""
    models = EmbeddingModels.open(None, os.environ, cache_dir=default_cache_dir(os.environ), workers=THREADS)
    try:
        await models.default.passages.embed(texts[:20])
        begin, cpu = time.perf_counter(), time.process_time()
        waiting = [texts[start : start + 32] for start in range(0, len(texts), 32)]

        async def work() -> None:
            while waiting:
                await models.default.passages.embed(waiting.pop())

        await asyncio.gather(*(work() for _ in range(THREADS)))
        spent = time.process_time() - cpu
        return len(texts) / (time.perf_counter() - begin), 1000 * spent / len(texts)
    finally:
        await models.aclose()


@asynccontextmanager
async def stack() -> AsyncIterator[dict[str, Any]]:
    """Start a stack with an empty store, and yield its ``stack.json``."""
    with tempfile.TemporaryDirectory() as directory:
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("causeway"),
            *("up", "--port", "0", "--data-dir", directory),
            env={**os.environ, "CAUSEWAY_LOG_LEVEL": "WARNING", "CAUSEWAY_INGEST_EMBEDDING_THREADS": str(THREADS)},
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            description = Path(directory) / "stack.json"
            async with asyncio.timeout(90):
                while not description.exists():  # noqa: ASYNC110  # another process writes it
                    await asyncio.sleep(0.1)
            yield json.loads(description.read_text())
        finally:
            process.send_signal(signal.SIGTERM)
            await process.wait()


class Bench:
    """Uploads documents to a stack, and measures its processes."""

    def __init__(self, description: dict[str, Any], http: httpx.AsyncClient, jetstream: Any) -> None:
        self._pids = {name: service["pid"] for name, service in description["services"].items()}
        self._http = http
        self._jetstream = jetstream
        self.memory: dict[str, float] = {}

    async def _unfinished(self) -> int:
        """Return the number of unfinished jobs, and record the peak memory of the processes."""
        for name, pid in self._pids.items():
            self.memory[name] = max(self.memory.get(name, 0.0), memory_mib([pid]))
        info = await self._jetstream.stream_info(keys.INGEST_STREAM)
        return int(info.state.messages)

    async def _count_searchable(self, index: str) -> tuple[int, int]:
        """Return the number of searchable documents and of their chunks."""
        documents = chunks = 0
        token: str | None = ""
        while token is not None:
            query: dict[str, str | int] = {"index": index, "limit": 1000, "page_token": token}
            page = (await self._http.get("/jobs", params=query)).raise_for_status().json()
            done = [job for job in page["jobs"] if job["state"] == "succeeded"]
            documents += len(done)
            chunks += sum(job["progress"]["chunks_total"] for job in done)
            token = page["next_page_token"]
        return documents, chunks

    async def run(
        self, name: str, documents: list[tuple[str, bytes]], alone: tuple[float, float], max_seconds: float
    ) -> Row:
        """Upload the documents, wait until they are searchable, and return the results.

        Args:
            name: The name of the kind of documents. The index has the same name, with hyphens.
            documents: The file name and the content of each document.
            alone: The texts per second and the CPU milliseconds per text of the embedding model alone.
            max_seconds: The maximum time of the upload and the wait.
        """
        before = {each: cpu_seconds([pid]) for each, pid in self._pids.items()}
        index = name.replace(" ", "-")
        begin = time.perf_counter()
        for start in range(0, len(documents), FILES_PER_REQUEST):
            files = [("file", document) for document in documents[start : start + FILES_PER_REQUEST]]
            (await self._http.post("/documents", data={"index": index}, files=files)).raise_for_status()
            await self._unfinished()
        accepted = time.perf_counter() - begin
        while await self._unfinished() and time.perf_counter() - begin < max_seconds:  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.2)
        seconds = time.perf_counter() - begin
        cpu = {each: round(cpu_seconds([pid]) - before[each], 1) for each, pid in self._pids.items()}
        done, chunks = await self._count_searchable(index)
        rate, alone_cpu = alone
        return Row(
            name,
            done,
            chunks,
            accepted,
            seconds,
            chunks / seconds,
            rate,
            chunks / seconds / rate,
            1000 * sum(cpu.values()) / chunks,
            alone_cpu,
            cpu,
        )


async def measure(files: int, max_seconds: float) -> tuple[list[Row], dict[str, float]]:
    """Measure long documents, then many short ones; return the results, and each process's peak memory in MiB."""
    source = random.Random(7)
    long = [(f"manual {n}.md", long_document(source, n)) for n in range(LONG_DOCUMENTS)]
    short = [(f"note {n}.txt", text(source, FILE_WORDS).encode()) for n in range(files)]
    sections = [f"manual\nManual > Part\n{text(source, SECTION_WORDS)}" for _ in range(EMBEDDED_TEXTS)]
    notes = [f"note {n}\n{content.decode()}" for n, (_, content) in enumerate(short[:EMBEDDED_TEXTS])]
    alone = [await embedding_alone(texts) for texts in (sections, notes)]
    async with stack() as description:
        client = await nats.connect(description["nats_url"], "bench")
        async with httpx.AsyncClient(base_url=description["url"], timeout=120, trust_env=False) as http:
            bench = Bench(description, http, client.jetstream(timeout=10))
            await http.post("/documents", data={"index": "warm"}, files={"file": ("a.md", b"# A\n\nText.\n")})
            await asyncio.sleep(3)
            rows = [
                await bench.run("long documents", long, alone[0], max_seconds),
                await bench.run("many files", short, alone[1], max_seconds),
            ]
        await client.close()
        return rows, bench.memory


def page(rows: Sequence[Row], memory: dict[str, float], load: float) -> str:
    """Return the results as Markdown. ``load`` is the load of the machine at the start."""
    lines = [
        "# Ingest",
        "",
        f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}, "
        f"{datetime.now(UTC):%Y-%m-%d}, load {load:.0f} before the run. `make bench-ingest` repeats the benchmark.",
        "",
        "The time is from the first upload until the last document is searchable, over HTTP with a stack on one",
        "machine. The bundled embedding model alone runs on the same cores with texts of the same lengths.",
        "",
        "| | documents | chunks | accepted after | all done after | chunks/s | embedding alone | share "
        "| CPU per chunk | embedding alone | share |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {row.name} | {row.documents} | {row.chunks} | {row.accepted_seconds:.1f} s | {row.seconds:.1f} s "
            f"| {row.chunks_a_second:.0f} | {row.alone:.0f} | {row.share:.2f} "
            f"| {row.cpu_ms:.1f} ms | {row.alone_cpu_ms:.1f} ms | {row.alone_cpu_ms / row.cpu_ms:.2f} |"
            for row in rows
        ),
        "",
        "CPU seconds and peak memory of each process:",
        "",
        f"| | {' | '.join(f'CPU, {row.name}' for row in rows)} | memory |",
        f"|---|{'---|' * len(rows)}---|",
        *(
            f"| {name} | {' | '.join(f'{row.cpu[name]:.1f} s' for row in rows)} | {mib:.0f} MiB |"
            for name, mib in memory.items()
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run the benchmark; print and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000, help="number of short files")
    parser.add_argument("--seconds", type=float, default=600.0, help="maximum seconds of each part")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    rows, memory = asyncio.run(measure(arguments.files, arguments.seconds))
    text_of_page = page(rows, memory, load)
    sys.stdout.write(text_of_page)
    arguments.results.mkdir(parents=True, exist_ok=True)
    (arguments.results / "ingest.md").write_text(text_of_page)
    result = {"load": load, "rows": [asdict(row) for row in rows], "memory_mib": memory}
    (arguments.results / "ingest.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
