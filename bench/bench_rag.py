"""Benchmark of RAG: cost of searches and chats over an index, with CPU by process and several clients.

Gateway, retriever (with the bundled embedding model) and generator share one core. The stub model server, the
broker and the load share another core. The corpus has documents of random words and vectors. The clients send the
questions of a list in rotation, so that the platform finds some of them in its caches.

Usage: python bench/bench_rag.py [--quick] [--chunks N] [--results DIR]
"""

import argparse
import json
import os
import platform
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl
import uvloop
from bench_retrieval import INDEX, WORDS
from comparison import LOAD_CORE, MAX_REQUESTS, Row, Stub
from load import percentile, run
from processes import cpu_seconds, memory_mib
from stacks import MODEL, Platform, run_platform

mpl.use("svg")
from matplotlib import pyplot as plt  # the backend must be selected first

TOKENS, PACE = 64, 0.01
QUESTIONS = 50
_SERVICES = ("gateway", "retriever", "generator")
COLUMNS = {
    "rate": "requests/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "first_ms": "first text ms",
    "cpu_ms": "CPU ms/request",
    **{f"{name}_cpu_ms": f"CPU of {name}" for name in _SERVICES},
    "memory_mib": "memory MiB",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of load.

    Attributes:
        name: The name in tables.
        path: The path of the requests.
        body: The body of a request, without the question.
        clients: The number of clients.
        sign: The bytes by which the client recognizes the first text of an answer.
    """

    name: str
    path: str
    body: Mapping[str, Any]
    clients: int
    sign: bytes = b'"content":"w'

    def request_body(self, question: str) -> bytes:
        """Return the body of a request with a question."""
        if self.path == "/retrieve":
            return json.dumps({**self.body, "query": question}).encode()
        return json.dumps({**self.body, "messages": [{"role": "user", "content": question}]}).encode()


def cases(clients: Sequence[int]) -> Iterator[Case]:
    """Yield all loads."""
    # Random vectors have a low similarity with all questions, so the threshold must accept all passages.
    over_index = {"model": MODEL, "index_name": INDEX, "retrieval": {"similarity_threshold": -1}}
    streamed = {**over_index, "stream": True}
    for number in clients:
        yield Case(
            "search, hybrid, top 5", "/retrieve", {"index_name": INDEX, "max_node_count": 5}, number, b'"text":"'
        )
    for number in clients:
        yield Case(f"chat completion over an index, {TOKENS} tokens", "/v1/chat/completions", over_index, number)
    for number in clients:
        yield Case(f"the same, streamed, {PACE * 1000:.0f} ms/token", "/v1/chat/completions", streamed, number)
    for number in clients:
        yield Case(f"RAG chat, {TOKENS} tokens", "/chat", {}, number)


async def measure(case: Case, platform: Platform, seconds: float) -> Row:
    """Run one load on a platform for a number of seconds; return the figures."""
    source = random.Random(7)
    bodies = [case.request_body(" ".join(source.choices(WORDS, k=8))) for _ in range(QUESTIONS)]
    url = platform.url + case.path
    # Fill the caches: send each question once.
    await run(url, bodies, min(case.clients, 8), QUESTIONS, sign=case.sign)
    pids = {name: platform.pids[name] for name in _SERVICES}
    before = {name: cpu_seconds([pid]) for name, pid in pids.items()}
    load = await run(url, bodies, case.clients, MAX_REQUESTS, seconds=seconds, sign=case.sign)
    requests = len(load.durations)
    cpu = {name: (cpu_seconds([pid]) - before[name]) / requests * 1000 for name, pid in pids.items()}
    return {
        "case": case.name,
        "clients": case.clients,
        "rate": load.rate,
        "p50_ms": percentile(load.durations, 0.5) * 1000,
        "p99_ms": percentile(load.durations, 0.99) * 1000,
        "first_ms": percentile(load.first_bytes, 0.5) * 1000,
        "cpu_ms": sum(cpu.values()),
        **{f"{name}_cpu_ms": spent for name, spent in cpu.items()},
        "memory_mib": memory_mib(list(pids.values())),
    }


def line(row: Row) -> str:
    """Return one row as text for the terminal."""
    figures = "  ".join(f"{row[name]:7.2f} {label}" for name, label in COLUMNS.items())
    return f"{row['case']:<44} {row['clients']:>3} clients {figures}"


def page(result: Mapping[str, Any]) -> str:
    """Return rag.md: the conditions of the run, and a table of the rows."""
    lines = [
        "# Questions over an index",
        "",
        f"{result['date']}, {result['machine']}. Gateway, retriever with the bundled embedding model, and "
        "generator share one core. The stub of the model server, NATS and the load share another core. The index "
        f"has {result['chunks']} chunks of 100 words. The clients send {QUESTIONS} questions of eight words in "
        f"rotation, after each question was sent once. An answer has {TOKENS} tokens. The model needs "
        f"{PACE * 1000:.0f} ms for each token, with and without streaming. Each load runs for {result['seconds']} "
        f"s. The load average of the machine was {result['load']:.0f} before the run.",
        "",
        f"| load | clients | {' | '.join(COLUMNS.values())} |",
        f"|---|--:|{'--:|' * len(COLUMNS)}",
    ]
    for row in result["rows"]:
        figures = " | ".join(f"{row[name]:,.2f}" for name in COLUMNS)
        lines.append(f"| {row['case']} | {row['clients']} | {figures} |")
    return "\n".join([*lines, ""])


def plot(rows: Sequence[Row], path: Path) -> None:
    """Plot the CPU of each load, by process."""
    figure, axis = plt.subplots(figsize=(9, 0.45 * len(rows) + 1.4))
    left = [0.0] * len(rows)
    for name in _SERVICES:
        values = [row[f"{name}_cpu_ms"] for row in rows]
        bars = axis.barh(range(len(rows)), values, left=left, label=name)
        left = [before + value for before, value in zip(left, values, strict=True)]
    axis.bar_label(bars, [f"{row['cpu_ms']:.1f}" for row in rows], fontsize=7, padding=3)
    axis.set_yticks(range(len(rows)), [f"{row['case']}, {row['clients']} clients" for row in rows], fontsize=8)
    axis.invert_yaxis()
    axis.margins(x=0.1)
    axis.set_xlabel("CPU ms per request, by process")
    axis.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    """Run the benchmark, and write rag.json, rag.md and rag.svg."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer loads, of two seconds each")
    parser.add_argument("--chunks", type=int, default=2000, help="size of the index")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {LOAD_CORE})
    begin, load = time.monotonic(), os.getloadavg()[0]
    seconds = 2.0 if arguments.quick else 5.0
    rows: list[Row] = []
    with run_platform(_SERVICES, Stub(TOKENS, PACE), chunks=arguments.chunks) as platform_:
        for case in cases((8,) if arguments.quick else (1, 8, 32)):
            rows.append(uvloop.run(measure(case, platform_, seconds)))
            print(line(rows[-1]), flush=True)
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load": load,
        "seconds": seconds,
        "chunks": arguments.chunks,
        "rows": rows,
    }
    arguments.results.mkdir(parents=True, exist_ok=True)
    (arguments.results / "rag.json").write_text(json.dumps(result, indent=1) + "\n")
    (arguments.results / "rag.md").write_text(page(result))
    plot(rows, arguments.results / "rag.svg")
    print(f"{time.monotonic() - begin:.0f} s; table and plot are in {arguments.results}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
