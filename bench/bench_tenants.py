"""Benchmark of a thousand tenants on the embedded store: start-up, idle cost and search latency.

One retriever process stores all indexes, and keeps up to 1,000 of them open. The benchmark creates the indexes over
gRPC, with a document each. At several numbers of indexes, it restarts the process and measures the time until the
process serves. With all indexes, it measures the idle cost, the times of searches in open, closed and random
indexes, and the memory that searches in 64 open indexes use. Finally, it starts a process that keeps 100 indexes
open, and searches random indexes. Most of these searches open an index and close another one.

Usage: python bench/bench_tenants.py [--tenants N] [--chunks N] [--seconds N] [--results DIR]
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from bench_retrieval import DIMENSION, MODEL, WORDS, Retriever, retriever, vectors
from causeway.retriever.v1 import document_pb2, retriever_pb2
from load import percentile
from processes import cpu_seconds, referenced_mib, reset_references, resources_of
from result_files import circumstances, print_now, write
from servicekit.principal import Principal

mpl.use("svg")
from matplotlib import pyplot as plt  # the backend must be selected first

INDEX = "own"
OPEN_INDEXES = 64  # indexes for the measurement of memory
MAX_OPEN = 100  # open indexes of the last process
FEW_TENANTS = 32  # tenants of repeated searches
CLOSED = 200  # searches of closed indexes
CLIENTS = 8
WRITERS = 4


def principal(tenant: int) -> Any:
    """Return the principal of a tenant."""
    return Principal(tenant=f"tenant-{tenant}", user="bench").to_proto()


async def create_index(stub: Any, tenant: int, chunks: int) -> None:
    """Create a tenant's index with its first document."""
    source = random.Random(tenant)
    document = document_pb2.Document(document_id="one", sourcefile="one.pdf", generation=1)
    texts = [" ".join(source.choices(WORDS, k=100)) for _ in range(chunks)]
    directions = vectors(source, chunks)
    begin = retriever_pb2.UpsertBegin(
        principal=principal(tenant), index=INDEX, document=document, embedding_model=MODEL, dimension=DIMENSION
    )
    pieces = [
        document_pb2.Chunk(number=number, text=text, indexed_text=text, vector=direction)
        for number, (text, direction) in enumerate(zip(texts, directions, strict=True))
    ]
    steps = [
        retriever_pb2.UpsertRequest(begin=begin),
        retriever_pb2.UpsertRequest(chunks=retriever_pb2.UpsertChunks(chunks=pieces)),
        retriever_pb2.UpsertRequest(commit=retriever_pb2.UpsertCommit(chunk_count=chunks)),
    ]
    await stub.Upsert(iter(steps))


async def search(stub: Any, tenant: int, source: random.Random) -> float:
    """Search a tenant's index; return the duration in milliseconds."""
    request = retriever_pb2.RetrieveRequest(
        principal=principal(tenant), indexes=[INDEX], query=" ".join(source.choices(WORDS, k=8)), top=5
    )
    begin = time.perf_counter()
    response = await stub.Retrieve(request)
    assert len(response.passages) == 5
    return (time.perf_counter() - begin) * 1000


async def run_clients(stub: Any, tenants: Sequence[int], count: int, seconds: float) -> list[float]:
    """Run concurrent clients that search random tenants' indexes; return the times in milliseconds."""
    end = time.perf_counter() + seconds

    async def client(number: int) -> list[float]:
        source, times = random.Random(number), []
        while time.perf_counter() < end:
            times.append(await search(stub, source.choice(tenants), source))
        return times

    results = await asyncio.gather(*(client(number) for number in range(count)))
    return [each for times in results for each in times]


def report_searches(name: str, times: list[float], seconds: float | None = None) -> dict[str, Any]:
    """Print and return the figures of searches. ``times`` are in milliseconds."""
    shares = {"p50": 0.5, "p99": 0.99, "longest": 1.0}
    row = {
        "case": name,
        "searches": len(times),
        "a_second": len(times) / seconds if seconds else None,
        **{name: percentile(times, share) for name, share in shares.items()},
        "distribution": [percentile(times, number / 100) for number in range(101)],
    }
    print_now(f"{name:<60} {len(times):>6} searches  p50 {row['p50']:8.2f} ms  p99 {row['p99']:8.2f} ms")
    return row


async def measure_searches(
    running: Retriever, tenants: int, seconds: float
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Search open, closed and random indexes; return the times, and the memory for searches in open indexes."""
    stub, source = running.stub, random.Random("order")
    order = source.sample(range(tenants), tenants)
    closed = [await search(stub, tenant, source) for tenant in order[: min(CLOSED, tenants)]]
    few = order[-min(FEW_TENANTS, tenants) :]
    for tenant in few:
        await search(stub, tenant, source)
    rows = [
        report_searches("an index that is closed, one client", closed),
        report_searches(
            f"{len(few)} indexes that are open, one client", await run_clients(stub, few, 1, seconds), seconds
        ),
    ]
    all_open = order[-min(OPEN_INDEXES, tenants) :]
    for tenant in all_open:
        await search(stub, tenant, source)
    reset_references(running.pid)
    times = await run_clients(stub, all_open, CLIENTS, seconds)
    rows.append(report_searches(f"{len(all_open)} indexes that are open, {CLIENTS} clients", times, seconds))
    used = {"indexes": len(all_open), "used_mb": referenced_mib(running.pid), **resources_of(running.pid)}
    times = await run_clients(stub, order, CLIENTS, seconds)
    rows.append(report_searches(f"any of {tenants} indexes, {CLIENTS} clients", times, seconds))
    return rows, used


async def measure_idle_cores(running: Retriever, seconds: float) -> float:
    """Return the number of cores that the idle process uses."""
    before, begin = cpu_seconds([running.pid]), time.perf_counter()
    await asyncio.sleep(seconds)
    return (cpu_seconds([running.pid]) - before) / (time.perf_counter() - begin)


async def measure(tenants: int, chunks: int, seconds: float) -> dict[str, Any]:
    """Create the indexes in steps, restart after each step, and search all indexes at the end."""
    steps = sorted({each for each in (10, 100, 300, 1000, 3000) if each < tenants} | {tenants})
    starts: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        created = 0
        create_ms = 0.0
        for step in steps:
            async with retriever(Path(directory)) as running:
                numbers = iter(range(created, step))

                async def write(stub: Any = running.stub, numbers: Any = numbers) -> None:
                    for number in numbers:
                        await create_index(stub, number, chunks)

                begin = time.perf_counter()
                await asyncio.gather(*(write() for _ in range(WRITERS)))
                create_ms = (time.perf_counter() - begin) / (step - created) * 1000
                created = step
            begin = time.perf_counter()
            async with retriever(Path(directory)) as running:
                ready = time.perf_counter() - begin
                first = await search(running.stub, 0, random.Random(0))
                starts.append({"tenants": step, "ready_s": ready, "first_ms": first, **resources_of(running.pid)})
                print_now(f"{step} indexes: ready after {ready:.2f} s, {starts[-1]['memory_mb']:.0f} MiB")
                if step == tenants:
                    idle_at_start = await measure_idle_cores(running, seconds)
                    rows, used = await measure_searches(running, tenants, seconds)
                    after = resources_of(running.pid)
                    idle_after_searches = await measure_idle_cores(running, seconds)
            if step == tenants:
                async with retriever(Path(directory), CAUSEWAY_RETRIEVER_OPEN_INDEXES=str(MAX_OPEN)) as running:
                    times = await run_clients(running.stub, range(tenants), CLIENTS, seconds)
                    name = f"any of {tenants} indexes, at most {MAX_OPEN} open, {CLIENTS} clients"
                    rows.append(report_searches(name, times, seconds))
                    bounded = resources_of(running.pid)
        disk = sum(each.stat().st_blocks * 512 for each in Path(directory).rglob("*") if each.is_file())
    return {
        "tenants": tenants,
        "chunks": chunks,
        "making_ms": create_ms,
        "starts": starts,
        "rows": rows,
        "used": used,
        "after": after,
        "bounded": bounded,
        "idle_cores": {"none": idle_at_start, "some": idle_after_searches},
        "disk_kb": disk / tenants / 1000,
    }


def page(result: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    after, used, cores = result["after"], result["used"], result["idle_cores"]
    lines = [
        "# An index for each of many tenants",
        "",
        f"{result['date']}, {result['machine']}. One retriever process with the embedded store and the bundled "
        f"embedding model; {result['tenants']} tenants with an index of {result['chunks']} chunks each. Client and "
        "retriever share the machine. Searches are hybrid.",
        "",
        "| indexes | ready after s | first search ms | memory MiB | descriptors | threads |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {each['tenants']} | {each['ready_s']:.2f} | {each['first_ms']:.0f} | {each['memory_mb']:.0f} | "
        f"{each['descriptors']} | {each['threads']} |"
        for each in result["starts"]
    ]
    lines += [
        "",
        "| searches | number | per second | p50 ms | p99 ms | longest ms |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for each in result["rows"]:
        rate = f"{each['a_second']:.0f}" if each["a_second"] else ""
        lines.append(
            f"| {each['case']} | {each['searches']} | {rate} | {each['p50']:.1f} | {each['p99']:.1f} | "
            f"{each['longest']:.1f} |"
        )
    lines += [
        "",
        f"Creating an index with its first document takes {result['making_ms']:.0f} ms with {WRITERS} concurrent "
        f"writers, and needs {result['disk_kb']:.0f} KB of disk. The idle process uses {cores['none'] * 100:.2f} "
        f"% of a core with one open index, and {cores['some'] * 100:.2f} % after all these searches. It then has "
        f"{after['memory_mb']:.0f} MiB of memory, {after['descriptors']:.0f} descriptors and "
        f"{after['threads']:.0f} threads. With at most {MAX_OPEN} open indexes it has "
        f"{result['bounded']['memory_mb']:.0f} MiB of memory.",
        "",
        f"While {CLIENTS} clients search {used['indexes']:.0f} open indexes, the process has "
        f"{used['memory_mb']:.0f} MiB of memory: {used['own_mb']:.0f} MiB of its own, and mapped files, whose "
        f"pages the system can reclaim. The searches use {used['used_mb']:.0f} MiB of both.",
        "",
        "![Start-up by indexes, and the times of searches](tenants.svg)",
        "",
    ]
    return "\n".join(lines)


def plot(result: dict[str, Any], path: Path) -> None:
    """Plot start-up and memory by the number of indexes, and the times of searches."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8))
    starts = result["starts"]
    numbers = [each["tenants"] for each in starts]
    left.plot(numbers, [each["ready_s"] for each in starts], marker="o", label="ready after, s")
    left.set(xlabel="indexes", ylabel="s", ylim=(0, None))
    memory = left.twinx()
    memory.plot(numbers, [each["memory_mb"] for each in starts], marker="s", color="grey", label="memory, MiB")
    memory.set(ylabel="MiB", ylim=(0, None))
    left.legend(fontsize=8, loc="upper left")
    memory.legend(fontsize=8, loc="lower right")
    for each in result["rows"]:
        right.plot(each["distribution"], [number / 100 for number in range(101)], label=each["case"])
    right.set(xlabel="ms (log)", ylabel="share of searches", xscale="log")
    right.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    """Run the benchmark, and write the page, the plot and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--tenants", type=int, default=1000, help="number of tenants, each with an index (default: 1000)"
    )
    parser.add_argument("--chunks", type=int, default=20, help="chunks of each index, at least 5 (default: 20)")
    parser.add_argument(
        "--seconds", type=float, default=15.0, help="seconds of each load and idle phase (default: 15)"
    )
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    figures = asyncio.run(measure(arguments.tenants, arguments.chunks, arguments.seconds))
    result = {**circumstances(), **figures}
    write(arguments.results, "tenants", result, page(result))
    plot(result, arguments.results / "tenants.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
