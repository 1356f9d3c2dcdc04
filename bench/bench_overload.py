"""Benchmark of overload: requests at three times the capacity.

The gateway has places for some answers; a stub model server takes always as long for one. First as many clients as
places ask one question after another: that is capacity. Then requests come at random moments (a Poisson process),
at one and at three times that rate, whether the ones before are answered or not. In the last load every fourth says
that it is a batch request. Accepted requests should be nearly as fast as without overload, and the others should be
refused quickly.

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
    "sent_rate": "a second",
    "answered": "answered",
    "refused": "refused",
    "answered_rate": "answered a second",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "ratio": "p99 of capacity's",
    "refused_p50_ms": "refused, p50 ms",
    "refused_p99_ms": "refused, p99 ms",
}


@dataclass(slots=True)
class Seen:
    """The results of a load. Times are in seconds.

    Attributes:
        answered: The duration of each answer.
        refused: The duration of each refusal.
        seconds: The time in which requests were sent.
    """

    answered: list[float] = field(default_factory=list)
    refused: list[float] = field(default_factory=list)
    seconds: float = 0.0


async def ask(http: aiohttp.ClientSession, url: str, seen: Seen, headers: dict[str, str] | None = None) -> None:
    """Send one request, and wait for its end."""
    begin = time.perf_counter()
    async with http.post(url, json=QUESTION, headers=headers) as response:
        body = await response.read()
    took = time.perf_counter() - begin
    if response.status == 200 and body.rstrip().endswith(b"[DONE]"):
        seen.answered.append(took)
    elif response.status == 503:
        seen.refused.append(took)
    else:
        raise RuntimeError(f"{response.status}: {body[:300]!r}")


async def closed(url: str, clients: int, seconds: float) -> Seen:
    """Run clients that each wait for their answer before the next request."""
    seen, begin = Seen(), time.perf_counter()

    async def client(http: aiohttp.ClientSession) -> None:
        while time.perf_counter() - begin < seconds:
            await ask(http, url, seen)

    async with session() as http, asyncio.TaskGroup() as group:
        for _ in range(clients):
            group.create_task(client(http))
    seen.seconds = time.perf_counter() - begin
    return seen


async def opened(url: str, rate: float, seconds: float, *, batch: bool = False) -> tuple[Seen, Seen]:
    """Send requests per second at random moments, interactive ones and optionally batch ones."""
    people, programs = Seen(seconds=seconds), Seen(seconds=seconds)
    moments, at = [], 0.0
    chance = random.Random(7)
    while (at := at + chance.expovariate(rate)) < seconds:
        moments.append(at)
    async with session() as http, asyncio.TaskGroup() as group:
        begin = time.perf_counter()
        for number, moment in enumerate(moments):
            await asyncio.sleep(max(0.0, begin + moment - time.perf_counter()))
            if batch and number % 4 == 0:
                group.create_task(ask(http, url, programs, {"x-priority": "batch"}))
            else:
                group.create_task(ask(http, url, people))
    return people, programs


def session() -> aiohttp.ClientSession:
    """Open connections without a limit, which would be a queue in front of the gateway's."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=60), json_serialize=json.dumps
    )


@contextmanager
def platform_of(places: int) -> Iterator[str]:
    """Run a gateway and a generator with a paced model server, and yield the URL of chat completions."""
    generator, gateway, broker, model, guardrails = free_ports(5)

    def start(*command: str, **environment: str) -> "subprocess.Popen[bytes]":
        told = {**os.environ, "CAUSEWAY_LOG_LEVEL": "ERROR", **environment}
        return subprocess.Popen(command, env=told, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

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


def row(load: str, seen: Seen, capacity: Seen) -> dict[str, Any]:
    """Return the figures of a load."""

    def milliseconds(values: list[float], share: float) -> float | None:
        return round(percentile(values, share) * 1000, 1) if values else None

    sent = len(seen.answered) + len(seen.refused)
    p99 = milliseconds(seen.answered, 0.99)
    return {
        "load": load,
        "sent": sent,
        "sent_rate": round(sent / seen.seconds, 1),
        "answered": len(seen.answered),
        "refused": len(seen.refused),
        "answered_rate": round(len(seen.answered) / seen.seconds, 1),
        "p50_ms": milliseconds(seen.answered, 0.5),
        "p99_ms": p99,
        "ratio": round(p99 / 1000 / percentile(capacity.answered, 0.99), 2) if p99 else None,
        "refused_p50_ms": milliseconds(seen.refused, 0.5),
        "refused_p99_ms": milliseconds(seen.refused, 0.99),
    }


def page(result: dict[str, Any]) -> str:
    """Return the table as Markdown."""
    lines = [
        "# More than can be answered",
        "",
        f"{result['date']}, {result['machine']}. {result['places']} places in the gateway; an answer of {TOKENS} "
        f"tokens takes the model server {TOKENS * PACE:.1f} s. Model server, generator, gateway and the load share "
        "the machine.",
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
        f"Wanted at three times capacity: p99 of what is answered within {ALLOWED_RATIO} times of capacity's "
        f"(measured: {worst['ratio']}), the rest refused within {ALLOWED_REFUSAL * 1000:.0f} ms (measured, p50 and "
        f"p99: {worst['refused_p50_ms']} and {worst['refused_p99_ms']} ms, connecting included).",
    ]
    lines += [
        "",
        "What is refused at capacity are clients that ask again, all at once, before the gateway has cleared away "
        "the answers that they have just read.",
    ]
    return "\n".join(lines) + "\n"


async def measure(url: str, places: int, seconds: float) -> list[dict[str, Any]]:
    """Run all loads in order."""
    await closed(url, places, TOKENS * PACE)  # warm up connections and caches
    capacity = await closed(url, places, seconds)
    rate = len(capacity.answered) / capacity.seconds
    rows = [row("capacity: as many clients as places", capacity, capacity)]
    for times in (1, 3):
        people, _ = await opened(url, times * rate, seconds)
        rows.append(row(f"{times} times capacity" if times > 1 else "at capacity's rate", people, capacity))
    people, programs = await opened(url, 3 * rate, seconds, batch=True)
    rows.append(row("3 times, of these 3 of 4 by people", people, capacity))
    rows.append(row("and 1 of 4 by programs (batch)", programs, capacity))
    return rows


def main() -> int:
    """Run everything, and write the table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=25.0, help="of each load (default: 25)")
    parser.add_argument("--places", type=int, default=32, help="answers at once (default: 32)")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    with platform_of(arguments.places) as url:
        rows = uvloop.run(measure(url, arguments.places, arguments.seconds))
    result = {**circumstances(), "places": arguments.places, "rows": rows}
    write(arguments.results, "overload", result, page(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
