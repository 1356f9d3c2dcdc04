"""Comparison of contenders, which run one after another under the same loads and with the same model server.

The model server is a stub. All processes of a contender are pinned to one core. The stub and the load run on
another core.
"""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop
from causeway_testing.servers import free_ports
from contenders import RESPONSES, Running, Start
from load import percentile, run
from processes import cpu_seconds, memory_mib, running, start_pinned, wait_for

CONTENDER_CORE, LOAD_CORE = 0, 1
MAX_REQUESTS = 4000
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stub:
    """The settings of the stub model server.

    Attributes:
        tokens: The number of tokens of each answer.
        pace: The seconds between two tokens.
    """

    tokens: int
    pace: float

    @property
    def label(self) -> str:
        """Return the name in tables."""
        return f"{self.tokens}, {self.pace * 1000:.0f} ms/token" if self.pace else f"{self.tokens}, burst"


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of load."""

    name: str
    stream: bool
    clients: int


def parse_arguments(description: str) -> argparse.Namespace:
    """Return the arguments of the command line: ``quick``, ``only`` and ``results``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help="loads of one second; bench_gateway also runs fewer loads"
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contenders whose names contain one of these")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    return parser.parse_args()


def compare(
    contenders: Mapping[str, Start],
    loads: Mapping[Stub, Sequence[Case]],
    show: Callable[[Row], str],
    *,
    only: Sequence[str] | None,
    seconds: float,
) -> dict[str, Any]:
    """Run all contenders; return the date, the machine, and a row for each contender under each load.

    Args:
        contenders: The contenders by name.
        loads: Each model server with its cases.
        show: Returns a row as text.
        only: Parts of the names of the selected contenders; None: all contenders.
        seconds: The duration of each load. A load also ends after `MAX_REQUESTS` requests.
    """
    os.sched_setaffinity(0, {LOAD_CORE})
    selected = {
        name: start
        for name, start in contenders.items()
        if only is None or any(part.lower() in name.lower() for part in only)
    }
    rows: list[Row] = []
    for stub, cases in loads.items():
        with run_stub(stub) as server:
            for name, start in selected.items():
                for figures in _measure_cases(start, server, cases, seconds):
                    rows.append({**figures, "contender": name})
                    print(show(rows[-1]), flush=True)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "seconds": seconds,
        "rows": rows,
    }


@contextmanager
def run_stub(stub: Stub) -> Iterator[str]:
    """Start a stub, and yield its address."""
    [port] = free_ports(1)
    command = (sys.executable, "-m", "causeway_testing.model_server", "--port", str(port))
    answers = ("--tokens", str(stub.tokens), "--pace", str(stub.pace))
    with running(start_pinned(LOAD_CORE, *command, *answers)):
        server = f"http://127.0.0.1:{port}"
        wait_for(f"{server}/v1/models")
        yield server


def _measure_cases(start: Start, server: str, cases: Sequence[Case], seconds: float) -> Iterator[Row]:
    with start(server, CONTENDER_CORE) as contender:
        for case in cases:
            yield {"case": case.name, **uvloop.run(_measure(case, contender, seconds))}


async def _measure(case: Case, contender: Running, seconds: float) -> dict[str, float]:
    """Run one contender under one load until its last answer is complete; return the figures."""
    question: dict[str, Any] = {"messages": [{"role": "user", "content": "Tell me something."}]}
    sign = b'"content":"w'
    if contender.url.endswith(RESPONSES):
        question = {"input": "Tell me something.", "store": False}
        sign = b'"delta":"w' if case.stream else b'"text":"w'
    body = json.dumps({"model": contender.model, "stream": case.stream, **question}).encode()
    # Warm up connections and caches.
    await run(contender.url, [body], min(case.clients, 8), MAX_REQUESTS, seconds=seconds / 4, sign=sign)
    before = cpu_seconds(contender.pids)
    load = await run(contender.url, [body], case.clients, MAX_REQUESTS, seconds=seconds, sign=sign)
    cpu = (cpu_seconds(contender.pids) - before) / len(load.durations)
    return {
        "rate": load.rate,
        "p50_ms": percentile(load.durations, 0.5) * 1000,
        "p99_ms": percentile(load.durations, 0.99) * 1000,
        "first_ms": percentile(load.first_bytes, 0.5) * 1000,
        "cpu_ms": cpu * 1000,
        "per_cpu_second": 1 / cpu if cpu else 0.0,
        "memory_mib": memory_mib(contender.pids),
    }
