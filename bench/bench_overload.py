"""Benchmark of overload: requests at three times the capacity.

The gateway accepts a limited number of concurrent answers, its places. A stub model server needs the same time for
each answer. First, as many clients as places send one question after another. Their rate is the capacity. Then
requests arrive at random times (a Poisson process), at one and at three times this rate, independent of earlier
requests. In the last load, every fourth request is a batch request. Accepted requests should be nearly as fast as
without overload. The gateway should refuse the other requests quickly.

Usage: python bench/bench_overload.py [--seconds N] [--places N] [--results DIR]
"""

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import uvloop
from causeway_testing.servers import free_ports
from load import percentile
from processes import running, wait_for
from result_files import circumstances, write
from servicekit.broker import Broker

TOKENS, PACE = 64, 0.03
QUESTION = {"model": "stub", "stream": True, "messages": [{"role": "user", "content": "Tell me something."}]}
ALLOWED_RATIO, ALLOWED_REFUSAL = 1.5, 0.05
COLUMNS = {
    "sent": "requests",
    "sent_rate": "requests/s",
    "answered": "answered",
    "refused": "refused",
    "answered_rate": "answered/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "ratio": "p99 relative to capacity",
    "refused_p50_ms": "refused, p50 ms",
    "refused_p99_ms": "refused, p99 ms",
}


@dataclass(slots=True)
class Results:
    """The results of a load. Times are in seconds.

    Attributes:
        answered: The duration of each answer.
        refused: The duration of each refusal.
        seconds: The time in which requests were sent.
    """

    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    seconds: float = 0.0


async def ask(
    http: aiohttp.ClientSession, url: str, results: Results, headers: dict[str, str] | None = None
) -> None:
    """Send one request, and record the duration until its end.

    Raises:
        RuntimeError: The response is neither a complete answer nor a refusal (503).
    """
    begin = time.perf_counter()
    async with http.post(url, json=QUESTION, headers=headers) as response:
        body = await response.read()
    duration = time.perf_counter() - begin
    if response.status == 200 and body.rstrip().endswith(b"[DONE]"):
        results.answered.append(duration)
    elif response.status == 503:
        results.refused.append(duration)
    else:
        raise RuntimeError(f"{response.status}: {body[:300]!r}")


async def closed_loop(url: str, clients: int, seconds: float) -> Results:
    """Run a closed loop: each client waits for its answer before the next request."""
    results, begin = Results(), time.perf_counter()

    async def client(http: aiohttp.ClientSession) -> None:
        while time.perf_counter() - begin < seconds:
            await ask(http, url, results)

    async with session() as http, asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client(http))
    results.seconds = time.perf_counter() - begin
    return results


async def open_loop(url: str, rate: float, seconds: float, *, batch: bool = False) -> tuple[Results, Results]:
    """Run an open loop: send requests at random times, and return the results of interactive and batch requests.

    With `batch`, every fourth request is a batch request.
    """
    interactive, batch_results = Results(seconds=seconds), Results(seconds=seconds)
    times, at = [], 0.0
    chance = random.Random(7)
    while (at := at + chance.expovariate(rate)) < seconds:
        times.append(at)
    async with session() as http, asyncio.TaskGroup() as group:
        begin = time.perf_counter()
        for number, start in enumerate(times):
            await asyncio.sleep(max(0.0, begin + start - time.perf_counter()))
            if batch and number % 4 == 0:
                group.create_task(ask(http, url, batch_results, {"x-priority": "batch"}))
            else:
                group.create_task(ask(http, url, interactive))
    return interactive, batch_results


def session() -> aiohttp.ClientSession:
    """Return a session without a limit of connections. A limit would add a queue before the gateway."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=60), json_serialize=json.dumps
    )


@contextmanager
def run_platform(places: int) -> Iterator[str]:
    """Run a gateway and a generator with a paced model server, and yield the URL of chat completions."""
    generator, gateway, broker, model, guardrails = free_ports(5)

    def start(*command: str, **environment: str) -> "subprocess.Popen[bytes]":
        variables = {**os.environ, "CAUSEWAY_LOG_LEVEL": "ERROR", **environment}
        return subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    with TemporaryDirectory() as directory, ExitStack() as stack:
        stub = (sys.executable, "-m", "causeway_testing.model_server", "--port", str(model))
        processes = [
            start(*Broker(Path(directory), broker).command()),
            start(*stub, "--tokens", str(TOKENS), "--pace", str(PACE)),
            start(
                *(sys.executable, "-m", "generator"),
                CAUSEWAY_GENERATOR_PORT=str(generator),
                CAUSEWAY_OPENAI_BASE_URL=f"http://127.0.0.1:{model}/v1",
                CAUSEWAY_OPENAI_MODELS="stub",
                CAUSEWAY_MODEL="stub",
            ),
            start(
                *(sys.executable, "-m", "gateway"),
                CAUSEWAY_GATEWAY_PORT=str(gateway),
                CAUSEWAY_GENERATOR_TARGET=f"127.0.0.1:{generator}",
                CAUSEWAY_GUARDRAILS_TARGET=f"127.0.0.1:{guardrails}",
                CAUSEWAY_NATS_URL=f"nats://127.0.0.1:{broker}",
                CAUSEWAY_MAX_ANSWERS=str(places),
            ),
        ]
        stack.enter_context(running(*processes))
        url = f"http://127.0.0.1:{gateway}/v1/chat/completions"
        wait_for(url, json.dumps(QUESTION).encode(), 90)
        yield url


def row(load: str, results: Results, capacity: Results) -> dict[str, Any]:
    """Return the figures of a load."""

    def milliseconds(values: list[float], share: float) -> float | None:
        return round(percentile(values, share) * 1000, 1) if values else None

    sent = len(results.answered) + len(results.refused)
    p99 = milliseconds(results.answered, 0.99)
    return {
        "load": load,
        "sent": sent,
        "sent_rate": round(sent / results.seconds, 1),
        "answered": len(results.answered),
        "refused": len(results.refused),
        "answered_rate": round(len(results.answered) / results.seconds, 1),
        "p50_ms": milliseconds(results.answered, 0.5),
        "p99_ms": p99,
        "ratio": round(p99 / 1000 / percentile(capacity.answered, 0.99), 2) if p99 else None,
        "refused_p50_ms": milliseconds(results.refused, 0.5),
        "refused_p99_ms": milliseconds(results.refused, 0.99),
    }


def page(result: dict[str, Any]) -> str:
    """Return the table as Markdown."""
    lines = [
        "# Overload",
        "",
        f"{result['date']}, {result['machine']}. The gateway accepts {result['places']} concurrent answers "
        f"(places). The model server needs {TOKENS * PACE:.1f} s for an answer of {TOKENS} tokens. Model server, "
        "generator, gateway and the load share the machine.",
        "",
        "| load | " + " | ".join(COLUMNS.values()) + " |",
        "|---|" + "--:|" * len(COLUMNS),
    ]
    for each in result["rows"]:
        figures = ("" if each[name] is None else str(each[name]) for name in COLUMNS)
        lines.append(f"| {each['load']} | " + " | ".join(figures) + " |")
    worst = next(each for each in result["rows"] if each["load"].startswith("3 times"))
    lines += [
        "",
        f"Goals at three times capacity: the p99 of answered requests is at most {ALLOWED_RATIO} times the p99 at "
        f"capacity (measured: {worst['ratio']}). The gateway refuses the other requests within "
        f"{ALLOWED_REFUSAL * 1000:.0f} ms (measured, p50 and p99: {worst['refused_p50_ms']} and "
        f"{worst['refused_p99_ms']} ms, including the connection).",
    ]
    lines += [
        "",
        "At capacity, the gateway refuses requests of clients that send their next request before it has finished "
        "the answers that they have just read.",
    ]
    return "\n".join(lines) + "\n"


async def measure(url: str, places: int, seconds: float) -> list[dict[str, Any]]:
    """Run all loads in order."""
    await closed_loop(url, places, TOKENS * PACE)  # warm up connections and caches
    capacity = await closed_loop(url, places, seconds)
    rate = len(capacity.answered) / capacity.seconds
    rows = [row("capacity: as many clients as places", capacity, capacity)]
    for times in (1, 3):
        interactive, _ = await open_loop(url, times * rate, seconds)
        rows.append(row(f"{times} times capacity" if times > 1 else "at capacity's rate", interactive, capacity))
    interactive, batch_results = await open_loop(url, 3 * rate, seconds, batch=True)
    rows.append(row("3 times, with batch: interactive requests (3 of 4)", interactive, capacity))
    rows.append(row("3 times, with batch: batch requests (1 of 4)", batch_results, capacity))
    return rows


def main() -> int:
    """Run the benchmark, and write the table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=25.0, help="seconds of each load (default: 25)")
    parser.add_argument("--places", type=int, default=32, help="maximum number of concurrent answers (default: 32)")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    with run_platform(arguments.places) as url:
        rows = uvloop.run(measure(url, arguments.places, arguments.seconds))
    result = {**circumstances(), "places": arguments.places, "rows": rows}
    write(arguments.results, "overload", result, page(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
