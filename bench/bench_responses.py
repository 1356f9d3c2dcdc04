"""Benchmark of the Responses API: the cost of a stream compared with chat completions.

Gateway and generator run on one core, a stub model server and the load on another core. The loads alternate between
the protocols, so that other load on the machine affects all of them. The figure is the CPU of a stream. It must be
at most 1.15 times the CPU of a stream of chat completions.

Usage: python bench/bench_responses.py [--quick] [--results DIR]
"""

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop
from comparison import CONTENDER_CORE, LOAD_CORE, MAX_REQUESTS, Stub, run_stub
from contenders import OURS, RESPONSES, Running, contenders
from load import percentile, run
from processes import cpu_seconds

ALLOWED_RATIO = 1.15
STUBS = (Stub(72, 0.0), Stub(72, 0.01))
CLIENTS = (1, 16)
CHAT, PLAIN, STORED = "chat completions", "responses", "responses, stored"
_QUESTION = "Tell me something."
_BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": _QUESTION}]},
    PLAIN: {"input": _QUESTION, "store": False},
    STORED: {"input": _QUESTION, "store": True},
}
Row = dict[str, Any]


async def _measure(kind: str, platform_: Running, clients: int, seconds: float) -> dict[str, float]:
    """Run one load with one protocol; return the figures."""
    url = platform_.url if kind == CHAT else platform_.url.replace("/v1/chat/completions", RESPONSES)
    body = json.dumps({"model": platform_.model, "stream": True, **_BODIES[kind]}).encode()
    sign = b'"content":"w' if kind == CHAT else b'"delta":"w'
    before = cpu_seconds(platform_.pids)
    load = await run(url, [body], clients, MAX_REQUESTS, seconds=seconds, sign=sign)
    return {
        "cpu_ms": (cpu_seconds(platform_.pids) - before) / len(load.durations) * 1000,
        "p50_ms": percentile(load.durations, 0.5) * 1000,
        "first_ms": percentile(load.first_bytes, 0.5) * 1000,
        "rate": load.rate,
    }


def _rows(stub: Stub, rounds: int, seconds: float) -> Iterator[Row]:
    with run_stub(stub) as server, contenders()[OURS](server, CONTENDER_CORE) as platform_:
        for kind in _BODIES:
            uvloop.run(_measure(kind, platform_, 8, seconds))  # warm up connections and caches
        for clients in CLIENTS:
            results: dict[str, list[dict[str, float]]] = {kind: [] for kind in _BODIES}
            for _ in range(rounds):
                for kind in _BODIES:
                    results[kind].append(uvloop.run(_measure(kind, platform_, clients, seconds)))
            for kind, kind_rows in results.items():
                ratios = [
                    row["cpu_ms"] / chat["cpu_ms"] for row, chat in zip(kind_rows, results[CHAT], strict=True)
                ]
                figures = {name: statistics.median(row[name] for row in kind_rows) for name in kind_rows[0]}
                yield {
                    "case": f"stream of {stub.label}, {clients} clients",
                    "protocol": kind,
                    **figures,
                    "ratio": statistics.median(ratios),
                }


def _page(result: dict[str, Any]) -> str:
    lines = [
        "# A stream of the Responses API compared with chat completions",
        "",
        f"{result['date']}, {result['machine']}. Gateway and generator share one core. Stub, broker and load share "
        "another core. The CPU of the broker is not counted. The protocols alternate. The figures are medians of "
        f"{result['rounds']} rounds of {result['seconds']:g} s. Load average of the machine before the run and at "
        f"its end: {result['load_before']:.1f} and {result['load_after']:.1f}.",
        "",
        f"Goal: at most {ALLOWED_RATIO} times the CPU of chat completions, for responses that are not stored.",
        "",
        "| load | protocol | CPU ms/stream | times chat completions | p50 ms | first text ms | streams/s |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for row in result["rows"]:
        figures = (f"{row[name]:.2f}" for name in ("cpu_ms", "ratio", "p50_ms", "first_ms", "rate"))
        lines.append(f"| {row['case']} | {row['protocol']} | {' | '.join(figures)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the benchmark, and write the table and the figures; return 1 if a ratio is too large."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three short rounds")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    rounds, seconds = (3, 0.5) if arguments.quick else (7, 2.0)
    load_before = os.getloadavg()[0]
    os.sched_setaffinity(0, {LOAD_CORE})
    rows = [row for stub in STUBS for row in _rows(stub, rounds, seconds)]
    result = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "rounds": rounds,
        "seconds": seconds,
        "load_before": load_before,
        "load_after": os.getloadavg()[0],
        "rows": rows,
    }
    page = _page(result)
    print(page)
    arguments.results.mkdir(parents=True, exist_ok=True)
    (arguments.results / "responses.md").write_text(page)
    (arguments.results / "responses.json").write_text(json.dumps(result, indent=1) + "\n")
    return int(any(row["ratio"] > ALLOWED_RATIO for row in rows if row["protocol"] == PLAIN))


if __name__ == "__main__":
    sys.exit(main())
