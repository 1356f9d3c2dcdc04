"""Benchmark of vector storage in the embedded store: recall, memory and search times.

The bundled model embeds the sentences of the project's documentation. Each chunk's vector is a mixture of two
sentence vectors. The queries are the vectors of other sentences. The benchmark builds an index with a graph for
each vector storage from the same snapshot. A separate process opens each index and runs vector searches in
sequence. The figures are the share of the ten nearest chunks that a search has among its first ten results
(recall@10), the search times, the memory by which the process grows when it opens the index and searches, and the
part of this memory that the searches use.

Usage: python bench/bench_quantization.py [--chunks N] [--queries N] [--quantization KIND …] [--results DIR]
"""

import argparse
import asyncio
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import matplotlib as mpl
import msgspec
import numpy as np
import numpy.typing as npt
import structlog
from embedding.cache import default_cache_dir
from embedding.minilm import MiniLmEmbedder
from load import percentile
from processes import referenced_mib, reset_references, resources_of
from result_files import circumstances, print_now, write
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.document import Chunk, Document
from retriever.domain.index import IndexSpec
from retriever.domain.scope import EVERYTHING
from retriever.ports.store import ChunkPoint, Terms
from retriever.stores.edge.store import EdgeStore
from retriever.stores.vector_storage import Quantization, VectorStorage
from servicekit import keys

mpl.use("svg")
from matplotlib import pyplot as plt  # the backend must be selected first

Vectors = npt.NDArray[np.float32]

DOCS = Path(__file__).parents[1] / "docs"
SPEC = IndexSpec("local", "bench", "all-minilm-l6-v2", 384)
TOP = 10
DEPTH = 50  # results of each search: the minimum number of candidates of a hybrid search
PASSES = 5
DOCUMENT_CHUNKS = 100
TEXT = "text"
_BATCH = 64
KINDS: tuple[Quantization, ...] = ("none", "scalar", "binary")
STORAGES = tuple(VectorStorage(quantization, on_disk) for quantization in KINDS for on_disk in (False, True))


async def sentences() -> Vectors:
    """Return the vectors of the documentation's sentences in a fixed random order."""
    text = " ".join(each.read_text() for each in sorted(DOCS.rglob("*.md")))
    found = sorted({each.strip() for each in re.split(r"(?<=[.!?:|])\s+", text) if 40 <= len(each.strip()) <= 300})
    np.random.default_rng(0).shuffle(found)
    embedder = MiniLmEmbedder.load(default_cache_dir(os.environ))
    parts = [await embedder.embed(found[start : start + _BATCH]) for start in range(0, len(found), _BATCH)]
    vectors: Vectors = np.concatenate(parts).astype(np.float32)
    return vectors


def mixtures(source: Vectors, count: int) -> Vectors:
    """Return a number of unit vectors, each a random mixture of two vectors."""
    numbers = np.random.default_rng(1)
    first, second = numbers.integers(len(source), size=(2, count))
    share = numbers.uniform(0, 1, (count, 1)).astype(np.float32)
    mixed: Vectors = share * source[first] + (1 - share) * source[second]
    mixed /= np.linalg.norm(mixed, axis=1, keepdims=True)
    return mixed


def chunk_id(number: int) -> str:
    """Return the id of the chunk with a number."""
    collection = keys.collection(SPEC.tenant, SPEC.name)
    return str(keys.point_id(collection, f"d{number // DOCUMENT_CHUNKS}", 1, number % DOCUMENT_CHUNKS, TEXT))


async def snapshot(vectors: Vectors, directory: Path) -> None:
    """Write a snapshot of an index with these vectors."""
    store = EdgeStore(directory / "source", Scheduler())
    collection = await store.create(SPEC)
    for first in range(0, len(vectors), DOCUMENT_CHUNKS):
        part = vectors[first : first + DOCUMENT_CHUNKS]
        document = Document(f"d{first // DOCUMENT_CHUNKS}", generation=1, chunk_count=len(part))
        points = [
            ChunkPoint(chunk_id(first + n), Chunk(n, TEXT, TEXT, vector=each.tolist()), Terms((), ()))
            for n, each in enumerate(part)
        ]
        await collection.add_chunks(document, points)
        await collection.put_record(document)
    await collection.persist(directory / "snapshot")
    await store.aclose()


async def build(directory: Path, storage: VectorStorage) -> float:
    """Build the index with its graph from the snapshot; return the duration in seconds."""
    store = EdgeStore(directory / "store", Scheduler(), vectors=storage)
    begin = time.perf_counter()
    collection = await store.restore(SPEC, directory / "snapshot")
    seconds = time.perf_counter() - begin
    await collection.publish()
    await store.aclose()
    return seconds


async def measure(directory: Path) -> dict[str, Any]:
    """Open the index in this process; return the chunk ids that searches find, their times and their memory."""
    queries: list[list[float]] = np.load(directory / "queries.npy").tolist()
    store = EdgeStore(directory / "store", Scheduler())
    before = resources_of(os.getpid())
    collection = await store.find(SPEC.tenant, SPEC.name)
    assert collection is not None
    found = [list(await collection.dense(each, DEPTH, EVERYTHING))[:TOP] for each in queries]
    reset_references(os.getpid())
    times = []
    for _ in range(PASSES):
        for each in queries:
            begin = time.perf_counter()
            await collection.dense(each, DEPTH, EVERYTHING)
            times.append((time.perf_counter() - begin) * 1000)
    used, after = referenced_mib(os.getpid(), str(directory)), resources_of(os.getpid())
    await store.aclose()
    return {
        "found": found,
        "p50": percentile(times, 0.5),
        "p95": percentile(times, 0.95),
        "own_mb": after["own_mb"] - before["own_mb"],
        "files_mb": after["files_mb"] - before["files_mb"],
        "files_used_mb": used,
    }


def run(chunks: int, queries: int, storages: Sequence[VectorStorage]) -> Iterator[dict[str, Any]]:
    """Yield the figures of each vector storage."""
    source = asyncio.run(sentences())
    query_vectors, vectors = source[:queries], mixtures(source[queries:], chunks)
    exact = [
        {chunk_id(n) for n in np.argpartition(-(vectors @ query), TOP)[:TOP].tolist()} for query in query_vectors
    ]
    print_now(f"{len(source)} sentences, {chunks} chunks, {queries} queries")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        np.save(directory / "queries.npy", query_vectors)
        asyncio.run(snapshot(vectors, directory))
        for storage in storages:
            seconds = asyncio.run(build(directory, storage))
            files = [each for each in (directory / "store").rglob("*") if each.is_file()]
            disk = sum(each.stat().st_blocks * 512 for each in files) / 1e6
            command = [sys.executable, __file__, "--measure", name]
            row = msgspec.json.decode(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            hits = [len(nearest & set(found)) for nearest, found in zip(exact, row.pop("found"), strict=True)]
            figures = {"recall": sum(hits) / TOP / queries, "seconds": seconds, **row, "disk_mb": disk}
            yield {**asdict(storage), "chunks": chunks, "queries": queries, **figures}
            subprocess.run(["rm", "-r", str(directory / "store")], check=True)


def page(result: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    lines = [
        "# Quantized vectors in the embedded store",
        "",
        f"{result['date']}, {result['machine']}. The vectors have {SPEC.dimension} dimensions and are mixtures of "
        f"vectors of the bundled model. The queries run in sequence as vector searches with {DEPTH} results, each "
        f"{PASSES} times after a first run. A chunk has one word of text, so memory and disk are those of the "
        "vectors and the graph.",
        "",
        "| quantization | full vectors | chunks | recall@10 | p50 ms | p95 ms | own memory MiB | "
        "files in memory MiB | files that searches use MiB | disk MB | built in s |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {each['quantization']} | {'on the disk' if each['on_disk'] else 'in memory'} | {each['chunks']} | "
        f"{each['recall']:.3f} | {each['p50']:.2f} | {each['p95']:.2f} | {each['own_mb']:.0f} | "
        f"{each['files_mb']:.0f} | {each['files_used_mb']:.0f} | {each['disk_mb']:.0f} | {each['seconds']:.0f} |"
        for each in result["rows"]
    ]
    lines += [
        "",
        "Files in memory are pages of files that the process has mapped. The system can reclaim these pages. The "
        "searches use only a part of them. Recall compares the first ten results with the ten nearest chunks by "
        "full vectors. The rows `none` show the loss of recall by the graph.",
        "",
        "![Recall and memory by quantization](quantization.svg)",
        "",
    ]
    return "\n".join(lines)


def plot(result: dict[str, Any], path: Path) -> None:
    """Plot the recall and the memory of each vector storage."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6))
    rows = result["rows"]
    names = [
        f"{each['quantization']}\n{'disk' if each['on_disk'] else 'memory'}\n{each['chunks'] // 1000},000"
        for each in rows
    ]
    left.bar(names, [each["recall"] for each in rows])
    left.set(ylabel="recall@10", ylim=(0.5, 1))
    own = [each["own_mb"] for each in rows]
    right.bar(names, own, label="own memory")
    right.bar(names, [each["files_mb"] for each in rows], bottom=own, label="files in memory")
    right.plot(
        names, [each["files_used_mb"] for each in rows], "k_", markersize=22, label="files that searches use"
    )
    right.set(ylabel="MiB")
    right.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of an earlier run."""
    rows: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
    return rows


def main() -> int:
    """Run the benchmark, and write the page, the plot and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=100_000, help="chunks of the index (default: 100000)")
    parser.add_argument("--queries", type=int, default=300, help="number of queries (default: 300)")
    parser.add_argument("--quantization", choices=KINDS, nargs="+", help="only these; other rows do not change")
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    kinds = arguments.quantization or KINDS
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    if arguments.measure:
        sys.stdout.write(msgspec.json.encode(asyncio.run(measure(arguments.measure))).decode())
        return 0
    rows = read_rows(arguments.results / "quantization.json") if arguments.quantization else []
    rows = [each for each in rows if each["quantization"] not in kinds]
    for row in run(arguments.chunks, arguments.queries, [each for each in STORAGES if each.quantization in kinds]):
        rows = sorted([*rows, row], key=lambda each: (KINDS.index(each["quantization"]), each["on_disk"]))
        result = {**circumstances(), "rows": rows}
        write(arguments.results, "quantization", result, page(result))
        plot(result, arguments.results / "quantization.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
