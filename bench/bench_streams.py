"""Benchmark of thousands of slow streams on one gateway: memory, CPU, fairness and cancellation.

A stub model server sends one token per second to each stream. Streams start in steps. After each step, the
benchmark reads the memory. When all streams run, it counts their tokens for some time. Then a part of the clients
disconnects at once, and the other streams continue. The number of generators depends on the number of streams. All
processes and the load share the machine.

Usage: python bench/bench_streams.py [--streams N] [--pace SECONDS] [--seconds N] [--results DIR]
"""

import argparse
import asyncio
import itertools
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import uvloop
from causeway_testing.servers import free_ports
from load import percentile
from processes import cpu_seconds, memory_mib, running, wait_for
from result_files import circumstances, print_now, write
from servicekit.broker import Broker
from streams_report import GAPS, page, plot

STEPS = 5
STREAMS_A_GENERATOR = 1000  # streams of a generator, which accepts 1,024
DISCONNECTED_SHARE = 0.4  # the share of the clients that disconnect at once
QUESTION = {"model": "stub", "stream": True, "messages": [{"role": "user", "content": "Tell me something."}]}
_TEXT = b'"content":"w'
_START_SECONDS = 90
_MAX_CANCELLATION_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Platform:
    """The running platform.

    Attributes:
        port: The port of the gateway.
        gateway: The process id of the gateway.
        generators: The process ids of the generators.
    """

    port: int
    gateway: int
    generators: tuple[int, ...]

    def running_answers(self) -> int:
        """Return the number of running answers in the gateway."""
        url = f"http://127.0.0.1:{self.port}/metrics"
        with urllib.request.urlopen(url, timeout=30) as response:
            lines = response.read().decode().splitlines()
        return int(next(float(each.split()[-1]) for each in lines if each.startswith("causeway_answers_running")))


class Stream:
    """A client that reads one answer.

    Attributes:
        tokens: The arrival times of the tokens, in seconds of `time.perf_counter`.
        failure: The reason for which the stream failed, or empty.
    """

    def __init__(self) -> None:
        self.tokens: list[float] = []
        self.failure = ""
        self._reading: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def begin(self, port: int) -> None:
        """Send the request, and wait until the stream sends its first bytes or fails."""
        reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        body = json.dumps(QUESTION).encode()
        self._writer.write(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        has_begun = asyncio.Event()
        self._reading = asyncio.create_task(self._read(reader, has_begun))
        await has_begun.wait()

    async def _read(self, reader: asyncio.StreamReader, has_begun: asyncio.Event) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                self.failure = head.decode().partition("\r\n")[0]
            while not self.failure:
                if piece := await reader.read(65536):
                    now = time.perf_counter()
                    self.tokens += [now] * piece.count(_TEXT)
                    if b'"error"' in piece:
                        self.failure = piece.decode(errors="replace")[:300]
                    has_begun.set()
                else:
                    self.failure = "the stream ended early"
        except OSError as error:
            self.failure = str(error)
        finally:
            has_begun.set()

    def disconnect(self) -> None:
        """Close the connection during the answer."""
        assert self._reading is not None
        assert self._writer is not None
        self._reading.cancel()
        self._writer.transport.abort()


@contextmanager
def run_platform(streams: int, pace: float, answer_seconds: float, logs: Path | None = None) -> Iterator[Platform]:
    """Run a gateway and generators with a paced model server.

    Args:
        streams: The number of streams that the limits must admit.
        pace: The seconds between two tokens of a stream.
        answer_seconds: The duration of an answer.
        logs: Directory for the log file of each process; None: the logs are discarded.
    """
    count = -(-streams // STREAMS_A_GENERATOR)
    gateway, broker, model, guardrails, *ports = free_ports(4 + count)
    models = {
        "servers": {"stub": {"kind": "openai", "url": f"http://127.0.0.1:{model}/v1"}},
        "models": [
            {
                "name": "stub",
                "deployments": [{"server": "stub", "model": "stub", "max_concurrency": STREAMS_A_GENERATOR + 24}],
            }
        ],
    }

    def start(*command: str, **environment: str) -> "subprocess.Popen[bytes]":
        variables = {**os.environ, "CAUSEWAY_LOG_LEVEL": "WARNING" if logs else "ERROR", **environment}
        name = f"{next(numbers)}-{Path(command[-1] if command[1] == '-m' else command[0]).name}.log"
        with Path(logs / name if logs else os.devnull).open("wb") as log:
            return subprocess.Popen(command, env=variables, stdout=log, stderr=log)

    numbers = itertools.count()

    with TemporaryDirectory() as directory, ExitStack() as stack:
        file = Path(directory) / "models.yaml"
        file.write_text(json.dumps(models))
        tokens = str(round(answer_seconds / pace))
        stub = (sys.executable, "-m", "causeway_testing.model_server", "--port", str(model))
        dependencies = [
            start(*Broker(Path(directory), broker).command()),
            start(*stub, "--tokens", tokens, "--pace", str(pace)),
        ]
        generators = [
            start(
                *(sys.executable, "-m", "generator"),
                CAUSEWAY_GENERATOR_PORT=str(port),
                CAUSEWAY_MODELS_FILE=str(file),
                CAUSEWAY_MODEL="stub",
            )
            for port in ports
        ]
        gateway_process = start(
            *(sys.executable, "-m", "gateway"),
            CAUSEWAY_GATEWAY_PORT=str(gateway),
            CAUSEWAY_GENERATOR_TARGET="ipv4:" + ",".join(f"127.0.0.1:{port}" for port in ports),
            CAUSEWAY_GUARDRAILS_TARGET=f"127.0.0.1:{guardrails}",
            CAUSEWAY_NATS_URL=f"nats://127.0.0.1:{broker}",
            CAUSEWAY_ANSWER_TIMEOUT=str(answer_seconds),
            CAUSEWAY_MAX_ANSWERS=str(streams + 100),
            CAUSEWAY_MAX_REQUESTS=str(streams + 1000),
            CAUSEWAY_MAX_CONNECTIONS=str(max(10_000, 2 * streams)),
        )
        stack.enter_context(running(*dependencies, *generators, gateway_process))
        wait_for(f"http://127.0.0.1:{gateway}/v1/models", seconds=_START_SECONDS)
        yield Platform(gateway, gateway_process.pid, tuple(each.pid for each in generators))


async def measure(platform: Platform, count: int, pace: float, rate: float, seconds: float) -> dict[str, Any]:
    """Start the streams, measure them, and disconnect some clients."""
    streams: list[Stream] = []
    memory = [_memory(platform, 0)]
    began = time.perf_counter()
    for step in range(1, STEPS + 1):
        started = [Stream() for _ in range(count * step // STEPS - len(streams))]
        starting = []
        for stream in started:
            starting.append(asyncio.create_task(stream.begin(platform.port)))
            await asyncio.sleep(1 / rate)
        await asyncio.gather(*starting)
        streams += started
        await asyncio.sleep(min(2 * pace, 4))
        memory.append(_memory(platform, len(streams)))
        print_now(f"{len(streams)} streams, gateway {memory[-1]['gateway']:.0f} MiB")
    ramp = time.perf_counter() - began
    measurement = await _measure_tokens(platform, streams, seconds)
    before = await asyncio.to_thread(platform.running_answers)
    return {
        "ramp_seconds": ramp,
        "memory": memory,
        "answers": before,
        "measurement": measurement,
        "cancelled": await _measure_cancellation(platform, streams, before, pace),
    }


async def _measure_tokens(platform: Platform, streams: list[Stream], seconds: float) -> dict[str, Any]:
    """Count the tokens of each stream, and measure the times between them."""
    cpu = [cpu_seconds([platform.gateway]), cpu_seconds(platform.generators)]
    begin = time.perf_counter()
    await asyncio.sleep(seconds)
    end = time.perf_counter()
    used = [cpu_seconds([platform.gateway]) - cpu[0], cpu_seconds(platform.generators) - cpu[1]]
    arrivals = [[at for at in each.tokens if begin <= at < end] for each in streams]
    counts = sorted(len(each) for each in arrivals)
    gaps = sorted(after - before for each in arrivals for before, after in itertools.pairwise(each))
    total = sum(counts)
    return {
        "seconds": end - begin,
        "tokens": total,
        "broken": sum(bool(each.failure) for each in streams),
        "why": dict(Counter(each.failure for each in streams if each.failure).most_common(5)),
        "gateway_cores": used[0] / (end - begin),
        "generator_cores": used[1] / (end - begin),
        "gateway_ms_a_token": used[0] / max(1, total) * 1000,
        "generator_ms_a_token": used[1] / max(1, total) * 1000,
        "tokens_of_a_stream": {
            "min": counts[0],
            "p1": percentile(counts, 0.01),
            "median": percentile(counts, 0.5),
            "max": counts[-1],
        },
        "jain": total * total / (len(counts) * sum(each * each for each in counts)),
        "gap_ms": {name: percentile(gaps, share) * 1000 for name, share in GAPS.items()},
        "gaps": [percentile(gaps, number / 200) for number in range(201)],
    }


async def _measure_cancellation(
    platform: Platform, streams: list[Stream], before: int, pace: float
) -> dict[str, Any]:
    """Disconnect a part of the clients at once; measure the time until their answers end, and the other streams."""
    disconnecting = streams[: round(len(streams) * DISCONNECTED_SHARE)]
    remaining = streams[len(disconnecting) :]
    begin = time.perf_counter()
    for each in disconnecting:
        each.disconnect()
    curve = []
    while True:
        running_answers = await asyncio.to_thread(platform.running_answers)
        curve.append((time.perf_counter() - begin, running_answers))
        if running_answers <= before - len(disconnecting) or curve[-1][0] > _MAX_CANCELLATION_SECONDS:
            break
        await asyncio.sleep(0.2)
    await asyncio.sleep(max(0.0, min(5 * pace, 15) - (time.perf_counter() - begin)))
    end = time.perf_counter()
    counts = sorted(sum(begin <= at < end for at in each.tokens) for each in remaining)
    for each in remaining:
        each.disconnect()
    return {
        "disconnected": len(disconnecting),
        "seconds": curve[-1][0],
        "running": curve[-1][1],
        "curve": curve,
        "others_seconds": end - begin,
        "others_min": counts[0],
        "others_median": percentile(counts, 0.5),
        "others_broken": sum(bool(each.failure) for each in remaining),
    }


def _memory(platform: Platform, streams: int) -> dict[str, float]:
    return {
        "streams": streams,
        "gateway": memory_mib([platform.gateway]),
        "generators": memory_mib(platform.generators),
    }


def main() -> int:
    """Run the benchmark, and write the page, the plot and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=5000, help="number of concurrent streams (default: 5000)")
    parser.add_argument("--pace", type=float, default=1.0, help="seconds between two tokens (default: 1)")
    parser.add_argument("--rate", type=float, default=50.0, help="streams that start per second (default: 50)")
    parser.add_argument("--seconds", type=float, default=30.0, help="seconds of the measurement (default: 30)")
    parser.add_argument("--logs", type=Path, help="directory for the log of each process (default: discard them)")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    with run_platform(arguments.streams, arguments.pace, 900.0, arguments.logs) as platform:
        figures = uvloop.run(
            measure(platform, arguments.streams, arguments.pace, arguments.rate, arguments.seconds)
        )
        count = len(platform.generators)
    result = {**circumstances(), "pace": arguments.pace, "generators": count, **figures}
    write(arguments.results, "streams", result, page(result))
    plot(result, arguments.results / "streams.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
