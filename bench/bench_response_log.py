"""Benchmark of resumable answers: the cost of writing events to a log before they are sent.

Gateway and generator run on one core; the model server, the broker and the load on another core. Each token
contains the time at which the model server sent it. The same platform serves streams that are not stored, stored
streams and background responses in rotation, so that other load on the machine affects all kinds. Then the
benchmark resumes answers, reads one answer with many clients, and stores many answers.

Usage: python bench/bench_response_log.py [--quick] [--stored COUNT] [--results DIR]
"""

import argparse
import asyncio
import contextlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop
from causeway_testing.servers import free_ports
from comparison import CONTENDER_CORE, LOAD_CORE
from contenders import OURS, Running, contenders
from load import percentile
from processes import cpu_seconds, memory_mib, running, start_pinned, wait_for
from response_streams import StreamResult, begin, post, read
from stored_responses import stored_responses

KINDS: dict[str, dict[str, Any]] = {
    "not stored": {"store": False},
    "stored": {"store": True},
    "background": {"store": True, "background": True},
}
PLAIN = "not stored"
TOKENS, PACE, STREAMS = 72, 0.02, 32
READERS, READ_TOKENS, READ_PACE = 1000, 60, 0.5
RESUMPTIONS = 200
_RESUME_AFTER_SECONDS, _RESUME_AFTER_EVENTS = 0.7, 8
_CONNECT_SECONDS = 15.0
CPU_RATIO, DELAY_MS, RESUME_MS, LAG_MS, READER_KIB = 1.4, 80.0, 50.0, 1000.0, 50.0
Row = dict[str, Any]


@contextlib.contextmanager
def _run_platform(tokens: int, pace: float) -> Iterator[tuple[int, Running]]:
    """Run the platform with a model server, and yield the gateway's port and its processes."""
    [port] = free_ports(1)
    program = str(Path(__file__).with_name("stamped_model.py"))
    options = ("--port", str(port), "--tokens", str(tokens), "--pace", str(pace))
    server = f"http://127.0.0.1:{port}"
    with running(start_pinned(LOAD_CORE, sys.executable, program, *options)):
        wait_for(f"{server}/v1/models")
        with contenders()[OURS](server, CONTENDER_CORE) as platform_:
            gateway = urlsplit(platform_.url).port
            assert gateway is not None
            uvloop.run(begin(gateway))
            yield gateway, platform_


async def _measure_streams(port: int, platform_: Running, members: dict[str, Any], streams: int) -> Row:
    """Run concurrent clients, each with several streams in sequence; return the figures."""

    async def client() -> list[StreamResult]:
        return [await post(port, members, keep=False) for _ in range(streams)]

    before = cpu_seconds(platform_.pids)
    results = [
        stream
        for client_results in await asyncio.gather(*(client() for _ in range(STREAMS)))
        for stream in client_results
    ]
    delays = [delay for stream in results for delay in stream.delays]
    return {
        "cpu_ms": (cpu_seconds(platform_.pids) - before) / len(results) * 1000,
        "delay_p50_ms": percentile(delays, 0.5) * 1000,
        "delay_p95_ms": percentile(delays, 0.95) * 1000,
        "first_ms": statistics.median(stream.first for stream in results) * 1000,
    }


def _compare_kinds(rounds: int, streams: int, pace: float) -> list[Row]:
    """Run the kinds of streams in rotation; return the medians over the rounds."""
    rows_by_kind: dict[str, list[Row]] = {kind: [] for kind in KINDS}
    with _run_platform(TOKENS, pace) as (port, platform_):
        for members in KINDS.values():
            uvloop.run(_measure_streams(port, platform_, members, 1))  # warm up connections and caches
        for _ in range(rounds):
            for kind, members in KINDS.items():
                rows_by_kind[kind].append(uvloop.run(_measure_streams(port, platform_, members, streams)))
    rows = []
    for kind, kind_rows in rows_by_kind.items():
        plain = rows_by_kind[PLAIN]
        pairs = list(zip(kind_rows, plain, strict=True))
        ratio = statistics.median(row["cpu_ms"] / base["cpu_ms"] for row, base in pairs)
        added = statistics.median(row["delay_p95_ms"] - base["delay_p95_ms"] for row, base in pairs)
        medians = {name: statistics.median(row[name] for row in kind_rows) for name in kind_rows[0]}
        rows.append({"pace_ms": pace * 1000, "kind": kind, **medians, "cpu_ratio": ratio, "added_p95_ms": added})
    return rows


async def _resume_complete(port: int, count: int, clients: int) -> Row:
    """Read complete answers from the middle; return the quantiles of the time to the first event."""
    complete = await asyncio.gather(*(post(port, KINDS["stored"]) for _ in range(16)))
    names, events = [stream.name for stream in complete], min(stream.events for stream in complete)
    numbers = iter(range(count))
    firsts: list[float] = []

    async def client() -> None:
        for number in numbers:
            result = await read(port, names[number % len(names)], events // 2)
            firsts.append(result.first)

    await asyncio.gather(*(client() for _ in range(clients)))
    return {"case": f"{clients} complete, concurrent clients", **_quantiles(firsts)}


async def _resume_running(port: int, rounds: int) -> Row:
    """Read 32 running answers concurrently, without their first events.

    Return the quantiles of the time to the first event.
    """

    async def resume() -> float:
        name = await begin(port)
        await asyncio.sleep(_RESUME_AFTER_SECONDS)
        return (await read(port, name, _RESUME_AFTER_EVENTS, keep=False)).first

    firsts: list[float] = []
    for _ in range(rounds):
        firsts += await asyncio.gather(*(resume() for _ in range(STREAMS)))
    return {"case": f"{STREAMS} running, concurrent clients", **_quantiles(firsts)}


async def _measure_readers(port: int, platform_: Running, readers: int) -> Row:
    """Read one answer with many clients."""
    gateway = platform_.pids[-1:]
    before = memory_mib(gateway)
    name = await begin(port)
    since = time.perf_counter_ns() + int(_CONNECT_SECONDS * 1e9)
    reading = [asyncio.create_task(read(port, name, keep=False, since=since)) for _ in range(readers)]
    await asyncio.sleep(max(0.0, (since - time.perf_counter_ns()) / 1e9))
    memory = memory_mib(gateway)
    streams = await asyncio.gather(*reading)
    delays = [delay for stream in streams for delay in stream.delays]
    return {
        "readers": readers,
        "tokens_each": len(delays) / readers,
        "first_p95_ms": percentile([stream.first for stream in streams], 0.95) * 1000,
        "lag_p50_ms": percentile(delays, 0.5) * 1000,
        "lag_p95_ms": percentile(delays, 0.95) * 1000,
        "kib_each": (memory - before) * 1024 / readers,
    }


def _measure(stored: int, *, quick: bool) -> dict[str, Any]:
    rounds, streams = (1, 1) if quick else (3, 2)
    stream_rows = [row for pace in (0.0, PACE) for row in _compare_kinds(rounds, streams, pace)]
    with _run_platform(TOKENS, PACE) as (port, _):
        resumptions = [uvloop.run(_resume_complete(port, RESUMPTIONS, clients)) for clients in (1, STREAMS)]
        resumptions.append(uvloop.run(_resume_running(port, rounds)))
    with _run_platform(TOKENS, 0.0) as (port, _):
        example = uvloop.run(post(port, KINDS["stored"]))
    with _run_platform(READ_TOKENS, READ_PACE) as (port, platform_):
        readers = uvloop.run(_measure_readers(port, platform_, READERS))
    last = bytes(example.body).rstrip().rpartition(b"data: ")[2]
    stored_figures = asyncio.run(stored_responses(bytes(example.body), json.loads(last)["response"], stored))
    return {
        "rounds": rounds,
        "streams": stream_rows,
        "resumed": resumptions,
        "readers": readers,
        "stored": {"count": stored, **stored_figures},
    }


def _page(result: dict[str, Any]) -> str:
    readers, stored = result["readers"], result["stored"]
    lines = [
        "# Answers with stored events",
        "",
        f"{result['date']}, {result['machine']}. Gateway and generator share one core. Model server, broker and "
        "load share another core. The CPU of the broker is not counted. Load average of the machine before the "
        f"run and at its end: {result['load_before']:.1f} and {result['load_after']:.1f}.",
        "",
        f"## {STREAMS} concurrent streams of {TOKENS} tokens",
        "",
        f"Goals: at most {CPU_RATIO} times the CPU of a stream that is not stored; at most {DELAY_MS:.0f} ms more "
        "delay at p95. The kinds of streams run in rotation. The figures are medians of "
        f"{result['rounds']} rounds.",
        "",
        "| ms/token | stream | CPU ms | times not stored | delay p50 ms | delay p95 ms | added p95 ms | "
        "first event ms |",
        "|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    for row in result["streams"]:
        names = ("cpu_ms", "cpu_ratio", "delay_p50_ms", "delay_p95_ms", "added_p95_ms", "first_ms")
        figures = " | ".join(f"{row[name]:.2f}" for name in names)
        lines.append(f"| {row['pace_ms']:.0f} | {row['kind']} | {figures} |")
    lines += [
        "",
        "## Resuming",
        "",
        "The time from the request with a cursor to the first event, including the connection. Goal: p95 at most "
        f"{RESUME_MS:.0f} ms.",
        "",
        "| answers | p50 ms | p95 ms |",
        "|---|--:|--:|",
    ]
    lines += [f"| {row['case']} | {row['p50_ms']:.1f} | {row['p95_ms']:.1f} |" for row in result["resumed"]]
    lines += [
        "",
        "## Many readers of one answer",
        "",
        f"{readers['readers']} clients connect to one gateway at the same time; the model sends a token every "
        f"{READ_PACE * 1000:.0f} ms. First event: p95 {readers['first_p95_ms']:.0f} ms. Delay of a token: p50 "
        f"{readers['lag_p50_ms']:.0f} ms, p95 {readers['lag_p95_ms']:.0f} ms (goal: at most {LAG_MS:.0f} ms). "
        f"Memory of the gateway for each reader: {readers['kib_each']:.0f} KiB (goal: at most {READER_KIB:.0f} "
        "KiB).",
        "",
        f"## {stored['count']:,} stored responses",
        "",
        f"Each response has {stored['log_kib']:.1f} KiB of events in three entries and "
        f"{stored['state_kib']:.1f} KiB of state. In this case the server does not sync each write. "
        f"Storing all responses took {stored['fill_s']:.0f} s.",
        "",
        "| NATS | |",
        "|---|--:|",
        f"| memory, empty | {stored['memory_empty_mib']:.0f} MiB |",
        f"| memory, filled | {stored['memory_filled_mib']:.0f} MiB |",
        f"| time to store one more response | {stored['store_one_ms']:.1f} ms |",
        f"| start-up time | {stored['start_s']:.1f} s |",
        f"| memory after a start | {stored['memory_restarted_mib']:.0f} MiB |",
        f"| time to delete all responses after their expiry | {stored['expiry_s']:.1f} s |",
        f"| CPU of the deletion | {stored['expiry_cpu_s']:.1f} s |",
        f"| memory after the deletion | {stored['memory_expired_mib']:.0f} MiB |",
    ]
    return "\n".join(lines) + "\n"


def _quantiles(seconds: list[float]) -> Row:
    return {f"p{share}_ms": percentile(seconds, share / 100) * 1000 for share in (50, 95)}


def main() -> int:
    """Run the benchmark, and write the table and the figures; return 1 if a figure is too large."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round instead of three")
    parser.add_argument("--stored", type=int, default=100_000, help="number of stored responses (default: 100,000)")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    load_before = os.getloadavg()[0]
    os.sched_setaffinity(0, {LOAD_CORE})
    os.environ["CAUSEWAY_BACKGROUND_ANSWERS"] = os.environ["CAUSEWAY_BACKGROUND_PER_TENANT"] = "100"
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load_before": load_before,
        **_measure(arguments.stored, quick=arguments.quick),
        "load_after": os.getloadavg()[0],
    }
    page = _page(result)
    print(page)
    arguments.results.mkdir(parents=True, exist_ok=True)
    (arguments.results / "response_log.md").write_text(page)
    (arguments.results / "response_log.json").write_text(json.dumps(result, indent=1) + "\n")
    return int(_misses_goal(result))


def _misses_goal(result: dict[str, Any]) -> bool:
    return (
        any(row["cpu_ratio"] > CPU_RATIO or row["added_p95_ms"] > DELAY_MS for row in result["streams"])
        or any(row["p95_ms"] > RESUME_MS for row in result["resumed"])
        or result["readers"]["lag_p95_ms"] > LAG_MS
        or result["readers"]["kib_each"] > READER_KIB
    )


if __name__ == "__main__":
    sys.exit(main())
