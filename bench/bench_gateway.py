"""What the way through a gateway costs: requests, streams, CPU, first token, memory; ours beside others'.

One run on one machine against one model server, a stub that answers at once or 10 ms a token. Each contender runs
alone and is pinned, with all of its processes, to one core; the stub and the load have another.

Usage: python bench/bench_gateway.py [--quick] [--only NAME …] [--results DIR]
"""

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import report
import uvloop
from contenders import Running, contenders
from load import percentile, run
from processes import cpu_seconds, memory_mib, pinned, running, wait_for
from servicekit.testing import free_ports

CONTENDER_CORE, LOAD_CORE = 0, 1
PACE = 0.01
CLIENTS = (1, 16, 64)
MOST_REQUESTS = 4000


@dataclass(frozen=True, slots=True)
class Stub:
    """How the model server answers.

    Attributes:
        tokens: Of each answer.
        pace: Seconds between two of them.
    """

    tokens: int
    pace: float

    @property
    def label(self) -> str:
        """For tables."""
        return f"{self.tokens}, {self.pace * 1000:.0f} ms/token" if self.pace else f"{self.tokens}, burst"


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of load."""

    name: str
    stream: bool
    clients: int


STUBS = (Stub(64, 0.0), Stub(64, PACE), Stub(512, 0.0), Stub(512, PACE))


def cases(stub: Stub) -> Iterator[Case]:
    """The loads that a model server is asked for."""
    if stub == STUBS[0]:
        for clients in CLIENTS:
            yield Case(f"unary, {clients} clients", stream=False, clients=clients)
    for clients in CLIENTS:
        yield Case(f"stream of {stub.label}, {clients} clients", stream=True, clients=clients)


async def measure(case: Case, contender: Running, seconds: float) -> dict[str, float]:
    """One contender under one load, for so long and until its last answer is complete."""
    messages = [{"role": "user", "content": "Tell me something."}]
    body = json.dumps({"model": contender.model, "stream": case.stream, "messages": messages}).encode()
    # Connections are made, caches filled, and what is done with a first request is done.
    await run(contender.url, body, min(case.clients, 8), MOST_REQUESTS, seconds=seconds / 4)
    before = cpu_seconds(contender.pids)
    load = await run(contender.url, body, case.clients, MOST_REQUESTS, seconds=seconds)
    return {
        "rate": load.rate,
        "p50_ms": percentile(load.durations, 0.5) * 1000,
        "p99_ms": percentile(load.durations, 0.99) * 1000,
        "first_ms": percentile(load.first_bytes, 0.5) * 1000,
        "cpu_ms": (cpu_seconds(contender.pids) - before) * 1000 / len(load.durations),
        "memory_mib": memory_mib(contender.pids),
    }


def main() -> int:
    """Runs everything and writes table, plot and figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a second for each load, streams of 64 only")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contenders whose names hold one of these")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {LOAD_CORE})
    begin = time.monotonic()
    seconds = 1.0 if arguments.quick else 2.0
    wanted = {
        name: start
        for name, start in contenders().items()
        if arguments.only is None or any(part.lower() in name.lower() for part in arguments.only)
    }
    rows = []
    for stub in STUBS[:2] if arguments.quick else STUBS:
        [port] = free_ports(1)
        module = (sys.executable, "-m", "servicekit.testing_model_server", "--port", str(port))
        server = f"http://127.0.0.1:{port}"
        with ExitStack() as stack:
            answers = ("--tokens", str(stub.tokens), "--pace", str(stub.pace))
            stack.enter_context(running(pinned(LOAD_CORE, *module, *answers)))
            wait_for(f"{server}/v1/models")
            for name, start in wanted.items():
                with start(server, CONTENDER_CORE) as contender:
                    for case in cases(stub):
                        figures = uvloop.run(measure(case, contender, seconds))
                        rows.append({"case": case.name, "contender": name, **figures})
                        print(report.line(rows[-1]), flush=True)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    date = datetime.now(UTC).date().isoformat()
    result = {"date": date, "machine": machine, "seconds": seconds, "rows": rows}
    report.write(arguments.results, result)
    print(f"{time.monotonic() - begin:.0f} s; table and plot are in {arguments.results}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
