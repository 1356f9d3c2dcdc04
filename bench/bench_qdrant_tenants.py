"""Benchmark of a thousand tenants on a Qdrant server: calls, bytes and times of operations, and idle cost.

The benchmark starts the program in CAUSEWAY_QDRANT_SERVER on loopback, with one node. There are two layouts: the
indexes share a collection, or each index has a collection. For each layout, the benchmark creates the indexes with
a document each. Then it creates, fills, searches and deletes further indexes, and counts the calls and the bytes. A
relay counts the bytes in a separate pass, so that the times do not include it. With --stand-in the benchmark uses
the tests' stand-in for a server. The stand-in compares all points, so the page then has only calls and bytes.

Usage: python bench/bench_qdrant_tenants.py [--tenants N] [--chunks N] [--seconds N] [--layouts shared own]
       [--stand-in] [--results DIR]
"""

import argparse
import asyncio
import contextlib
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from bench_retrieval import WORDS
from causeway_testing.retriever.bench import Bench
from causeway_testing.retriever.qdrant_server import NoServer, ServerNode, server_program, started
from load import percentile
from processes import cpu_seconds
from qdrant_client import AsyncQdrantClient
from result_files import circumstances, print_now, write
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.document import Document
from retriever.domain.index import IndexSpec
from retriever.domain.query import Mode, Query
from retriever.indexes.lifecycle import Indexes
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.node import Node
from retriever.stores.qdrant.store import QdrantStore
from servicekit.principal import Principal

INDEX = "own"
WRITERS = 4
COUNTED_OPERATIONS = 5  # operations over which calls and bytes are counted
CALL_SECONDS = 60.0  # time-out of a call


class CountedNode(Node):
    """A node that counts its calls in `calls`."""

    calls: ClassVar[Counter[str]] = Counter()

    async def call(self, seconds: float, method: Any, *args: Any, **options: Any) -> Any:
        """Call a method of the client."""
        self.calls[method.__name__] += 1
        return await super().call(seconds, method, *args, **options)


@dataclass
class Traffic:
    """The bytes through a relay in both directions.

    Attributes:
        address: The address of the relay.
    """

    address: str = ""
    sent: int = 0
    received: int = 0
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    @asynccontextmanager
    async def relaying(self, node: ServerNode) -> AsyncIterator[None]:
        """Relay bytes to a node and back."""

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            node_reader, node_writer = await asyncio.open_connection(node.host, node.grpc)
            for source, target, name in ((reader, node_writer, "sent"), (node_reader, writer, "received")):
                task = asyncio.create_task(self._pump(source, target, name))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, name: str) -> None:
        with contextlib.suppress(ConnectionError):
            while content := await source.read(65536):
                setattr(self, name, getattr(self, name) + len(content))
                target.write(content)
                await target.drain()
        target.close()


class Retriever:
    """The services of a retriever on a server, in this process."""

    def __init__(self, store: QdrantStore, indexes: Indexes, chunks: int) -> None:
        self._bench = Bench(store, indexes, Scheduler())
        self._chunks = chunks
        self.indexes = indexes
        self.store = store

    async def create(self, tenant: int) -> None:
        """Create an empty index."""
        embedder = self._bench.embedder
        await self.indexes.create(IndexSpec(_tenant_name(tenant), INDEX, embedder.model, embedder.dimension))

    async def upload(self, tenant: int, generation: int = 1) -> None:
        """Store a document."""
        source = random.Random(tenant)
        texts = [" ".join(source.choices(WORDS, k=100)) for _ in range(self._chunks)]
        document = Document("one", generation=generation)
        await self._bench.put(document, texts, INDEX, _principal(tenant))

    async def search(self, tenant: int, mode: Mode = Mode.HYBRID) -> None:
        """Search an index."""
        query = Query((INDEX,), " ".join(random.choices(WORDS, k=8)), mode=mode, top=5, expand=False)
        found = await self._bench.retrieval.retrieve(_principal(tenant), query)
        assert found.passages or mode is Mode.TEXT  # a document may contain none of the words

    async def delete(self, tenant: int) -> None:
        """Delete an index."""
        await self.indexes.delete(_tenant_name(tenant), INDEX)

    async def aclose(self) -> None:
        """Close the retriever."""
        await self._bench.aclose()


def _tenant_name(tenant: int) -> str:
    return f"tenant-{tenant}"


def _principal(tenant: int) -> Principal:
    return Principal(tenant=_tenant_name(tenant), user="bench")


@asynccontextmanager
async def retriever(address: str, layout: Layout, chunks: int) -> AsyncIterator[Retriever]:
    """Open a retriever on a server at an address."""
    connection = Connection(
        [CountedNode.from_url(f"http://{address}", None, CALL_SECONDS)], CALL_SECONDS, CALL_SECONDS
    )
    store = await QdrantStore.open(connection, layout)
    # `Indexes.open` would start periodic calls, which are measured separately.
    running = Retriever(store, Indexes(store), chunks)
    try:
        yield running
    finally:
        await running.aclose()


@contextmanager
def record_traffic(traffic: Traffic, operations: int, row: dict[str, Any]) -> Iterator[None]:
    """Record the calls and the kilobytes per operation of the block in a row."""
    CountedNode.calls.clear()
    sent, received = traffic.sent, traffic.received
    yield
    row["calls"] = {name: number / operations for name, number in sorted(CountedNode.calls.items())}
    row["sent_kb"] = (traffic.sent - sent) / operations / 1000
    row["received_kb"] = (traffic.received - received) / operations / 1000


async def measure_times(operation: Callable[[int], Awaitable[None]], tenants: list[int]) -> dict[str, Any]:
    """Run an operation for tenants in order; return the number of times and their quantiles in milliseconds."""
    times = []
    for tenant in tenants:
        begin = time.perf_counter()
        await operation(tenant)
        times.append((time.perf_counter() - begin) * 1000)
    return {"number": len(times), "p50": percentile(times, 0.5), "p99": percentile(times, 0.99)}


async def measure(node: ServerNode, layout: Layout, tenants: int, chunks: int, seconds: float) -> dict[str, Any]:
    """Create the indexes of a layout, and measure operations and the idle server."""
    rows: dict[str, dict[str, Any]] = {}
    async with retriever(node.address, layout, chunks) as running:
        numbers, begin = iter(range(tenants)), time.perf_counter()

        async def fill() -> None:
            for number in numbers:
                await running.create(number)
                await running.upload(number)

        await asyncio.gather(*(fill() for _ in range(WRITERS)))
        print_now(f"{tenants} indexes created in {time.perf_counter() - begin:.0f} s")
        await running.indexes.tidy()
        sample = random.Random("order").sample(range(tenants), min(tenants, 200))
        new = list(range(tenants, tenants + 20))
        operations: list[tuple[str, Callable[[int], Awaitable[None]], list[int]]] = [
            ("make an index", running.create, new),
            (f"store a document of {chunks} chunks", running.upload, new),
            ("hybrid search", running.search, sample),
            ("search by words", lambda tenant: running.search(tenant, Mode.TEXT), sample),
            ("delete an index", running.delete, new),
        ]
        for tenant in sample:  # the first calls for an index are not measured
            await running.search(tenant)
        for name, operation, numbers_of_tenants in operations:
            rows[name] = await measure_times(operation, numbers_of_tenants)
        await running.indexes.tidy()
        before, begin = cpu_seconds([node.pid]), time.perf_counter()
        await asyncio.sleep(seconds)
        idle = (cpu_seconds([node.pid]) - before) / (time.perf_counter() - begin)
    await measure_traffic(node, layout, chunks, rows, sample[:COUNTED_OPERATIONS], new[:COUNTED_OPERATIONS])
    status = Path(f"/proc/{node.pid}/status").read_text()
    memory = int(status.split("VmRSS:")[1].split()[0]) / 1024
    return {"operations": rows, "idle_cores": idle, "memory_mb": memory}


async def measure_traffic(
    node: ServerNode, layout: Layout, chunks: int, rows: dict[str, Any], sample: list[int], new: list[int]
) -> None:
    """Count the calls and bytes of the operations, and those of a retriever every 15 seconds."""
    traffic = Traffic()
    async with traffic.relaying(node), retriever(traffic.address, layout, chunks) as running:
        for tenant in sample:
            await running.search(tenant)
        await running.indexes.tidy()
        steps = [running.create, running.upload, running.search, running.search, running.delete]
        for (name, row), operation in zip(rows.items(), steps, strict=True):
            selected = sample if operation == running.search else new
            with record_traffic(traffic, len(selected), row):
                for tenant in selected:
                    if name == "search by words":
                        await running.search(tenant, Mode.TEXT)
                    else:
                        await operation(tenant)
        await running.indexes.tidy()
        rows["idle, every 15 s"] = {}
        with record_traffic(traffic, COUNTED_OPERATIONS, rows["idle, every 15 s"]):
            for _ in range(COUNTED_OPERATIONS):
                await running.indexes.tidy()


async def run(program: Path, layouts: list[str], tenants: int, chunks: int, seconds: float) -> dict[str, Any]:
    """Measure each layout on its own server."""
    result: dict[str, Any] = {"tenants": tenants, "chunks": chunks, "layouts": {}}
    for name in layouts:
        with tempfile.TemporaryDirectory() as directory:
            async with started(program, Path(directory), 1) as [node]:
                client = Node.from_url(f"http://{node.address}", None, CALL_SECONDS)
                info = await client.call(CALL_SECONDS, AsyncQdrantClient.info)
                await client.aclose()
                result["server"] = f"{info.title} {info.version}"
                layout = Layout(shared=name == "shared")
                result["layouts"][name] = await measure(node, layout, tenants, chunks, seconds)
    return result


def page(result: dict[str, Any], *, with_times: bool) -> str:
    """Return the figures as Markdown."""
    lines = [
        "# An index for each of many tenants on a Qdrant server",
        "",
        f"{result['date']}, {result['machine']}. {result['server']}, one node; {result['tenants']} tenants with an "
        f"index of {result['chunks']} chunks each. Retriever and server share the machine.",
        "",
    ]
    if not with_times:
        lines += ["The server is the tests' stand-in. Its times are not those of a server and are omitted.", ""]
    titles = {"shared": "Indexes share a collection", "own": "A collection for each index"}
    for name, measured in result["layouts"].items():
        lines += [f"## {titles[name]}", "", "| | p50 ms | p99 ms | calls | KB sent | KB received | which calls |"]
        lines += ["|---|--:|--:|--:|--:|--:|---|"]
        for operation, row in measured["operations"].items():
            times = [f"{row[each]:.1f}" if with_times and each in row else "" for each in ("p50", "p99")]
            which = ", ".join(f"{number:g} {call}" for call, number in row["calls"].items())
            calls = sum(row["calls"].values())
            lines.append(
                f"| {operation} | {times[0]} | {times[1]} | {calls:.1f} | {row['sent_kb']:.1f} | "
                f"{row['received_kb']:.1f} | {which} |"
            )
        if with_times:
            lines += [
                "",
                f"The server uses {measured['memory_mb']:.0f} MiB of memory. Without requests it uses "
                f"{measured['idle_cores'] * 100:.2f} % of a core.",
            ]
        lines.append("")
    return "\n".join(lines)


def stand_in(directory: Path) -> Path:
    """Write an executable that starts the stand-in; return its path."""
    path = directory / "qdrant"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m causeway_testing.retriever.qdrant_program "$@"\n')
    path.chmod(0o755)
    return path


def main() -> int:
    """Run the benchmark, and write the page and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--tenants", type=int, default=1000, help="number of tenants, each with an index (default: 1000)"
    )
    parser.add_argument("--chunks", type=int, default=50, help="chunks of each index, at least 5 (default: 50)")
    parser.add_argument("--seconds", type=float, default=15.0, help="idle seconds of the server (default: 15)")
    parser.add_argument("--layouts", nargs="+", choices=("shared", "own"), default=["shared", "own"])
    parser.add_argument("--stand-in", action="store_true", help="use the stand-in of the tests")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        try:
            program = stand_in(Path(directory)) if arguments.stand_in else server_program()
        except NoServer as error:
            print_now(str(error))
            return 2
        figures = asyncio.run(
            run(program, arguments.layouts, arguments.tenants, arguments.chunks, arguments.seconds)
        )
    result = {**circumstances(), **figures}
    write(arguments.results, "qdrant_tenants", result, page(result, with_times=not arguments.stand_in))
    return 0


if __name__ == "__main__":
    sys.exit(main())
