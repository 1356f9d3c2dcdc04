"""What the way through the platform costs: requests, streams, CPU, first token, memory.

One run on one machine: a stub model server, asked directly, through a bare relay, and through gateway and
generator. Each contender is pinned to one core (gateway and generator together on it), stub and load to another.

Usage: python bench/bench_gateway.py [--quick] [--results DIR]
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import report
import uvloop
from load import percentile, run
from servicekit.broker import Broker
from servicekit.testing import free_ports

CONTENDER_CORE, LOAD_CORE = 0, 1
PACE = 0.01
JSON = {"Content-Type": "application/json"}
QUESTION = json.dumps({"model": "stub", "messages": [{"role": "user", "content": "Hi"}]}).encode()
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of load."""

    name: str
    tokens: int
    pace: float
    stream: bool
    clients: int
    requests: int


def cases(*, quick: bool) -> list[Case]:
    """The loads, fewer requests of each if it shall be quick."""
    less = 8 if quick else 1
    found = [
        Case(f"unary, {c} clients", 64, 0, stream=False, clients=c, requests=1600 // less) for c in (1, 16, 64)
    ]
    for tokens in (64, 512):
        for pace, label in ((0.0, "burst"), (PACE, "10 ms/token")):
            for clients in (1, 16, 64):
                # Paced streams last as long as they last; what is measured is CPU and the first token.
                count = 800 * 64 // tokens if not pace else max(clients * 2, 4)
                found.append(
                    Case(
                        f"stream of {tokens}, {label}, {clients} clients",
                        tokens,
                        pace,
                        stream=True,
                        clients=clients,
                        requests=max(clients, count // less),
                    )
                )
    return found


def pinned(core: int, *command: str, **environment: str) -> "subprocess.Popen[bytes]":
    """Starts a process on one core."""
    return subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),  # no threads are running yet
    )


@contextmanager
def running(*processes: "subprocess.Popen[bytes]") -> Iterator[list[int]]:
    """Their ids, until the block is left."""
    try:
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(20)


def wait_for(url: str, body: bytes | None = None, seconds: float = 30) -> None:
    """Waits until a request is answered well."""
    end = time.monotonic() + seconds
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(url, body, JSON), timeout=30)
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return


def cpu_seconds(pids: list[int]) -> float:
    """CPU that processes used so far, user and system."""
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def memory_mib(pids: list[int]) -> float:
    """Resident memory of processes."""
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@contextmanager
def contenders(stub: str) -> Iterator[dict[str, tuple[str, list[int]]]]:
    """Name → base URL and processes."""
    relay, generator, gateway, broker = free_ports(4)
    with ExitStack() as stack:
        # The gateway has a queue to talk to, as in production; it costs nothing here and is not counted.
        directory = Path(stack.enter_context(TemporaryDirectory()))
        nats = subprocess.Popen(Broker(directory, broker).command(), stderr=subprocess.DEVNULL)
        stack.enter_context(running(nats))
        floor = pinned(CONTENDER_CORE, "bench/relay.py", "--port", str(relay), "--target", stub)
        model = pinned(
            CONTENDER_CORE,
            "-m",
            "generator",
            CAUSEWAY_GENERATOR_PORT=str(generator),
            CAUSEWAY_OPENAI_BASE_URL=f"{stub}/v1",
            CAUSEWAY_OPENAI_MODELS="stub",
            CAUSEWAY_MODEL="stub",
            CAUSEWAY_LOG_LEVEL="WARNING",
        )
        ours = pinned(
            CONTENDER_CORE,
            "-m",
            "gateway",
            CAUSEWAY_GATEWAY_PORT=str(gateway),
            CAUSEWAY_GENERATOR_TARGET=f"127.0.0.1:{generator}",
            CAUSEWAY_NATS_URL=f"nats://127.0.0.1:{broker}",
            CAUSEWAY_LOG_LEVEL="WARNING",
        )
        floor_pids = stack.enter_context(running(floor))
        our_pids = stack.enter_context(running(model, ours))
        for port in (relay, gateway):
            wait_for(f"http://127.0.0.1:{port}/v1/chat/completions", QUESTION)
        yield {
            "stub directly": (stub, []),
            "asgi + aiohttp relay": (f"http://127.0.0.1:{relay}", floor_pids),
            "causeway": (f"http://127.0.0.1:{gateway}", our_pids),
        }


async def measure(case: Case, base: str, pids: list[int]) -> dict[str, float]:
    """One contender under one load."""
    body = json.dumps(
        {"model": "stub", "stream": case.stream, "messages": [{"role": "user", "content": "Tell me something."}]}
    ).encode()
    url = f"{base}/v1/chat/completions"
    await run(url, body, case.clients, case.clients)
    before = cpu_seconds(pids)
    load = await run(url, body, case.clients, case.requests)
    return {
        "rate": load.rate,
        "p50_ms": percentile(load.durations, 0.5) * 1000,
        "p99_ms": percentile(load.durations, 0.99) * 1000,
        "first_ms": percentile(load.first_bytes, 0.5) * 1000,
        "cpu_ms": (cpu_seconds(pids) - before) * 1000 / case.requests,
        "memory_mib": memory_mib(pids),
    }


def main() -> int:
    """Runs everything and writes table, plot and figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="an eighth of the requests")
    parser.add_argument("--results", type=Path, default=Path("bench/results"))
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {LOAD_CORE})
    rows = []
    todo = cases(quick=arguments.quick)
    for tokens, pace in dict.fromkeys((case.tokens, case.pace) for case in todo):
        [port] = free_ports(1)
        server = pinned(
            LOAD_CORE, "-m", "servicekit.testing_model_server",
            "--port", str(port), "--tokens", str(tokens), "--pace", str(pace),
        )  # fmt: skip
        stub = f"http://127.0.0.1:{port}"
        with running(server):
            wait_for(f"{stub}/v1/models")
            with contenders(stub) as found:
                for case in (case for case in todo if (case.tokens, case.pace) == (tokens, pace)):
                    for name, (base, pids) in found.items():
                        figures = uvloop.run(measure(case, base, pids))
                        rows.append({"case": case.name, "contender": name, **figures})
                        print(report.line(rows[-1]), flush=True)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    report.write(
        arguments.results, {"date": datetime.now(UTC).date().isoformat(), "machine": machine, "rows": rows}
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
