"""Benchmark of two versions of this project: CPU of each process per request, with interleaved loads.

Both versions run at the same time, each as a separate platform. The loads alternate between them in rounds, so that
other programs on the machine affect both. Each round yields the change of the CPU sum. The table has the median and
the spread of the changes. The program checks out and installs the older version once, in build/versions.

Usage: python bench/compare_versions.py BASE [--case NAME …] [--rounds N] [--seconds S]
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import uvloop
from bench_ingest import FILES_PER_REQUEST, text
from bench_retrieval import INDEX, WORDS
from comparison import LOAD_CORE, Stub
from load import run
from processes import cpu_seconds
from servicekit import keys, nats
from stacks import MODEL, Platform, run_platform

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ROOT / "build" / "versions"
BASE, HERE = "base", "here"
_CHAT = {"model": MODEL}
_STREAM = {"model": MODEL, "stream": True}
_OVER_INDEX = {"model": MODEL, "index_name": INDEX, "retrieval": {"similarity_threshold": -1}}
_SEARCH = {"index_name": INDEX, "max_node_count": 5}
_PLAIN = ("generator", "gateway")
_WITH_INDEX = (*_PLAIN, "retriever")
_COMPLETIONS = "/v1/chat/completions"
_CHUNKS = 2000
_QUESTIONS = 50
_MAX_REQUESTS = 100_000
_WARM_UP_SECONDS = 2.0
_DOCUMENTS_A_SECOND = 50
_DOCUMENT_WORDS = 60
_INGEST_SECONDS = 300
_POLL_SECONDS = 0.05

CpuTimes = dict[str, float]
"""CPU milliseconds per request, by process."""
Load = Callable[[Platform, float, int], int]
"""Runs a load on a platform for a number of seconds in a round; returns the number of requests."""
_WARM_UP = 0
"""The number of the round before the others, which fills caches."""


def _questions(path: str, body: Mapping[str, Any]) -> list[bytes]:
    source = random.Random(7)
    texts = [" ".join(source.choices(WORDS, k=8)) for _ in range(_QUESTIONS)]
    if path == "/retrieve":
        return [json.dumps({**body, "query": question}).encode() for question in texts]
    return [json.dumps({**body, "messages": [{"role": "user", "content": each}]}).encode() for each in texts]


def _requests(
    path: str, body: Mapping[str, Any], clients: int, platform: Platform, seconds: float, number: int
) -> int:
    sign = b'"text":"' if path == "/retrieve" else b'"content":"w'
    url, bodies = platform.url + path, _questions(path, body)
    if number == _WARM_UP:  # the caches need every question
        uvloop.run(run(url, bodies, clients, _QUESTIONS, sign=sign))
    load = uvloop.run(run(url, bodies, clients, _MAX_REQUESTS, seconds=seconds, sign=sign))
    return len(load.durations)


def _documents(platform: Platform, seconds: float, number: int) -> int:
    """Upload small documents to a new index and wait until they are searchable."""
    count, index = round(seconds * _DOCUMENTS_A_SECOND), f"round-{number}"
    source = random.Random(number)
    files = [("file", (f"note {at}.txt", text(source, _DOCUMENT_WORDS).encode())) for at in range(count)]

    async def upload() -> int:
        client = await nats.connect(platform.nats_url, "bench")
        jetstream = client.jetstream(timeout=10)
        async with (
            httpx.AsyncClient(base_url=platform.url, timeout=120, trust_env=False) as http,
            asyncio.timeout(_INGEST_SECONDS),
        ):
            for start in range(0, count, FILES_PER_REQUEST):
                batch = files[start : start + FILES_PER_REQUEST]
                (await http.post("/documents", data={"index": index}, files=batch)).raise_for_status()
            while (await jetstream.stream_info(keys.INGEST_STREAM)).state.messages:  # noqa: ASYNC110  # another process
                await asyncio.sleep(_POLL_SECONDS)
            jobs = (await http.get("/jobs", params={"index": index, "limit": 1000})).raise_for_status().json()
        await client.close()
        if {job["state"] for job in jobs["jobs"]} != {"succeeded"}:
            raise RuntimeError(f"some documents of the index {index} are not searchable")
        return count

    return asyncio.run(upload())


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of load.

    Attributes:
        title: The title in the table.
        load: The function that loads a platform.
        services: The services of the platform.
        pace: The model server's seconds for a token.
        counted: Further processes whose CPU counts.
    """

    title: str
    load: Load
    services: Sequence[str] = _PLAIN
    pace: float = 0.0
    counted: Sequence[str] = field(default=())

    @property
    def processes(self) -> tuple[str, ...]:
        """Return the processes whose CPU counts."""
        return (*self.services, *self.counted)


def _requests_load(path: str, body: Mapping[str, Any], clients: int) -> Load:
    return partial(_requests, path, body, clients)


CASES = {
    "unary": Case("chat completion, 16 clients", _requests_load(_COMPLETIONS, _CHAT, 16)),
    "burst": Case("stream of 64 at once, 16 clients", _requests_load(_COMPLETIONS, _STREAM, 16)),
    "stream16": Case("stream of 64, 10 ms/token, 16 clients", _requests_load(_COMPLETIONS, _STREAM, 16), pace=0.01),
    "stream64": Case("stream of 64, 10 ms/token, 64 clients", _requests_load(_COMPLETIONS, _STREAM, 64), pace=0.01),
    "guarded": Case(
        "the same with two detectors, 20 ms/token, 32 clients",
        _requests_load(_COMPLETIONS, _STREAM, 32),
        (*_PLAIN, "guardrails"),
        0.02,
    ),
    "search": Case("search, hybrid, top 5, 8 clients", _requests_load("/retrieve", _SEARCH, 8), _WITH_INDEX, 0.01),
    "over-index": Case(
        "chat completion over an index, 8 clients", _requests_load(_COMPLETIONS, _OVER_INDEX, 8), _WITH_INDEX, 0.01
    ),
    "rag": Case("RAG chat, 64 tokens, 8 clients", _requests_load("/chat", {}, 8), _WITH_INDEX, 0.01),
    "document": Case(
        "a small document, from the upload to searchable",
        _documents,
        (*_WITH_INDEX, "ingest"),
        counted=("nats",),
    ),
}


@dataclass(frozen=True, slots=True)
class Row:
    """The cost of a case.

    Attributes:
        name: The name of the case or of one of its processes.
        base: Median of the older version, in CPU milliseconds per request.
        here: The same of this version.
        changes: The relative change of each round: 0.1 is a tenth more.
    """

    name: str
    base: float
    here: float
    changes: tuple[float, ...]


def rows(title: str, rounds: Sequence[Mapping[str, CpuTimes]]) -> list[Row]:
    """Return the row of a case and the rows of its processes; each round has the CPU time of both versions."""
    processes = [name for name in rounds[0][HERE] if any(each[BASE][name] or each[HERE][name] for each in rounds)]
    return [
        _row(title, [{version: sum(spent.values()) for version, spent in each.items()} for each in rounds]),
        *(
            _row(f"of it {name}", [{version: spent[name] for version, spent in each.items()} for each in rounds])
            for name in processes
        ),
    ]


def _row(name: str, rounds: Sequence[Mapping[str, float]]) -> Row:
    changes = tuple(each[HERE] / each[BASE] - 1 for each in rounds if each[BASE])
    base, here = (statistics.median(each[version] for each in rounds) for version in (BASE, HERE))
    return Row(name, base, here, changes)


def page(results: Sequence[Row]) -> str:
    """Return the table."""
    lines = [
        "| CPU ms per request | base | here | change | least to most |",
        "|---|--:|--:|--:|--:|",
    ]
    for row in results:
        changes = row.changes or (0.0,)
        spread = f"{min(changes):+.1%} to {max(changes):+.1%}"
        change = f"{statistics.median(changes):+.1%}"
        lines.append(f"| {row.name} | {row.base:.2f} | {row.here:.2f} | {change} | {spread} |")
    return "\n".join(lines)


def order(number: int) -> tuple[str, str]:
    """Return the versions in the order of a round; the order alternates."""
    return (HERE, BASE) if number % 2 else (BASE, HERE)


def install(base: str) -> str:
    """Return the interpreter of another version; check out and install the version if necessary."""
    commit = _git("rev-parse", "--verify", f"{base}^{{commit}}")
    checkout = VERSIONS / commit[:12]
    if not checkout.exists():
        _git("worktree", "prune")
        _git("worktree", "add", "--detach", str(checkout), commit)
    subprocess.run(["make", "-s", "-C", str(checkout), ".venv/.ready"], check=True)
    return str(checkout / ".venv" / "bin" / "python")


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def measure(case: Case, platforms: Mapping[str, Platform], count: int, seconds: float) -> list[dict[str, CpuTimes]]:
    """Return the CPU time of both versions in each round, after a round that fills their caches."""
    for platform in platforms.values():
        case.load(platform, _WARM_UP_SECONDS, _WARM_UP)
    rounds = []
    for number in range(1, count + 1):
        spent = {version: _measure_cpu(case, platforms[version], seconds, number) for version in order(number)}
        rounds.append(spent)
        sums = (f"{version} {sum(spent[version].values()):.2f} ms" for version in (BASE, HERE))
        print(f"{case.title}, round {number}: {', '.join(sums)}", flush=True)
    return rounds


def _measure_cpu(case: Case, platform: Platform, seconds: float, number: int) -> CpuTimes:
    before = {name: cpu_seconds([platform.pids[name]]) for name in case.processes}
    requests = case.load(platform, seconds, number)
    return {name: (cpu_seconds([platform.pids[name]]) - before[name]) / requests * 1000 for name in case.processes}


@contextlib.contextmanager
def _platforms(case: Case, pythons: Mapping[str, str]) -> Iterator[dict[str, Platform]]:
    chunks = _CHUNKS if "retriever" in case.services else 0
    with contextlib.ExitStack() as stack:
        start = partial(run_platform, case.services, Stub(64, case.pace), chunks=chunks)
        yield {version: stack.enter_context(start(python=python)) for version, python in pythons.items()}


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base", help="the older version: a commit, a tag or a branch")
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES), help="the loads (default: all)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="seconds of each load in each round")
    arguments = parser.parse_args()
    pythons = {BASE: install(arguments.base), HERE: sys.executable}
    os.sched_setaffinity(0, {LOAD_CORE})
    results: list[Row] = []
    for name in arguments.case:
        case = CASES[name]
        with _platforms(case, pythons) as platforms:
            results += rows(case.title, measure(case, platforms, arguments.rounds, arguments.seconds))
        print(page(results), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
