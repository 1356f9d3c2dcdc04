"""What two pattern detectors on each answer cost: time to the first text, throughput, CPU; ours beside others'.

One run on one machine against one model server, a stub that answers at once or 20 ms a token. Each contender runs
alone and is pinned, with all of its processes, to one core; the stub and the load have another.

Usage: python bench/bench_guardrails.py [--quick] [--only NAME …] [--results DIR]
"""

import argparse
import json
import os
import platform
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop
from contenders import GUARDED, OURS, Running, guarded_contenders
from load import percentile, run
from processes import cpu_seconds, memory_mib, pinned, running, wait_for
from servicekit.testing import free_ports

CONTENDER_CORE, LOAD_CORE = 0, 1
TOKENS = 64
PACES = (0.02, 0.0)
MOST_REQUESTS = 3000
NEMO, IORAILS = "NeMo Guardrails", "NeMo Guardrails, IORails"
FIRST = "stream of 64, 20 ms/token, 1 client"
UNARY = "unary, 32 clients"
BURST = "stream of 64, burst, 32 clients"
PACED = "stream of 64, 20 ms/token, 32 clients"
CASES = {0.02: ((FIRST, True, 1), (PACED, True, 32)), 0.0: ((UNARY, False, 32), (BURST, True, 32))}
COLUMNS = {
    "rate": "requests/s",
    "first_ms": "first text ms",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "cpu_ms": "CPU ms/request",
    "per_cpu_second": "requests/CPU s",
    "memory_mib": "memory MiB",
}
Row = dict[str, Any]


async def measure(contender: Running, seconds: float, *, stream: bool, clients: int) -> dict[str, float]:
    """One contender under one load, for so long and until its last answer is complete."""
    messages = [{"role": "user", "content": "Tell me something."}]
    body = json.dumps({"model": contender.model, "stream": stream, "messages": messages}).encode()
    await run(contender.url, body, min(clients, 8), MOST_REQUESTS, seconds=seconds / 4)
    before = cpu_seconds(contender.pids)
    load = await run(contender.url, body, clients, MOST_REQUESTS, seconds=seconds)
    cpu = (cpu_seconds(contender.pids) - before) / len(load.durations)
    return {
        "rate": load.rate,
        "first_ms": percentile(load.first_bytes, 0.5) * 1000,
        "p50_ms": percentile(load.durations, 0.5) * 1000,
        "p99_ms": percentile(load.durations, 0.99) * 1000,
        "cpu_ms": cpu * 1000,
        "per_cpu_second": 1 / cpu if cpu else 0.0,
        "memory_mib": memory_mib(contender.pids),
    }


def goals(rows: list[Row]) -> list[str]:
    """What was aimed at, beside what came out; only where all that it takes was measured."""
    at = {(row["case"], row["contender"]): row for row in rows}
    wanted = [("first text, added by the detectors", "≤ 5 ms", FIRST, OURS, "first_ms")]
    lines = ["| | wanted | measured |", "|---|--:|--:|"]
    for label, wish, case, other, column in wanted:
        if (case, GUARDED) in at and (case, other) in at:
            lines.append(f"| {label} | {wish} | {at[case, GUARDED][column] - at[case, other][column]:.1f} ms |")
    for other, case, wish in (
        (NEMO, UNARY, "≥ 3 times"),
        (NEMO, BURST, "≥ 3 times"),
        (NEMO, PACED, "≥ 3 times"),
        (IORAILS, UNARY, "≥ 0.5 times"),
        (IORAILS, BURST, "≥ 1 times"),
        (IORAILS, PACED, "≥ 1 times"),
    ):
        if (case, GUARDED) in at and (case, other) in at:
            ratio = at[case, other]["cpu_ms"] / at[case, GUARDED]["cpu_ms"]
            lines.append(f"| {case}: requests per CPU second beside {other} | {wish} | {ratio:.2f} times |")
    return lines


def page(result: dict[str, Any]) -> str:
    """The table."""
    rows: list[Row] = result["rows"]
    lines = [
        "# Two pattern detectors on each answer: ours and others'",
        "",
        f"{result['date']}, {result['machine']}. Each contender has one core for all of its processes (ours are "
        "gateway, generator and guardrails service), stub and load have another. CPU and memory are over all "
        f"processes of the contender. Each case runs for {result['seconds']} s, after a warm-up, and until its "
        "last answer is complete. A social security number and a credit card number are looked for in the answer; "
        "nothing is found.",
        "",
        "Ours and LiteLLM's judge each token and replace what they find. NeMo Guardrails streams as it does by "
        "default, in chunks of 200 tokens: an answer of 64 leaves at its end.",
        "",
        *goals(rows),
        "",
        "## Everything",
        "",
        f"| case | contender | {' | '.join(COLUMNS.values())} |",
        f"|---|---|{'--:|' * len(COLUMNS)}",
    ]
    for row in sorted(rows, key=lambda row: (FIRST, PACED, UNARY, BURST).index(row["case"])):
        figures = " | ".join(f"{row[name]:,.2f}" for name in COLUMNS)
        lines.append(f"| {row['case']} | {row['contender']} | {figures} |")
    return "\n".join([*lines, ""])


def main() -> int:
    """Runs everything and writes table and figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a second for each load")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="contenders whose names hold one of these")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {LOAD_CORE})
    begin = time.monotonic()
    seconds = 1.0 if arguments.quick else 3.0
    wanted = {
        name: start
        for name, start in guarded_contenders().items()
        if arguments.only is None or any(part.lower() in name.lower() for part in arguments.only)
    }
    rows: list[Row] = []
    for pace in PACES:
        [port] = free_ports(1)
        module = (sys.executable, "-m", "servicekit.testing_model_server", "--port", str(port))
        server = f"http://127.0.0.1:{port}"
        with ExitStack() as stack:
            answers = ("--tokens", str(TOKENS), "--pace", str(pace))
            stack.enter_context(running(pinned(LOAD_CORE, *module, *answers)))
            wait_for(f"{server}/v1/models")
            for name, start in wanted.items():
                with start(server, CONTENDER_CORE) as contender:
                    for case, stream, clients in CASES[pace]:
                        figures = uvloop.run(measure(contender, seconds, stream=stream, clients=clients))
                        rows.append({"case": case, "contender": name, **figures})
                        shown = "  ".join(f"{figures[each]:8.2f} {label}" for each, label in COLUMNS.items())
                        print(f"{case:<38} {name:<26} {shown}", flush=True)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    date = datetime.now(UTC).date().isoformat()
    result = {"date": date, "machine": machine, "seconds": seconds, "rows": rows}
    arguments.results.mkdir(parents=True, exist_ok=True)
    (arguments.results / "guardrails.json").write_text(json.dumps(result, indent=1) + "\n")
    (arguments.results / "guardrails.md").write_text(page(result))
    print("\n".join(goals(rows)))
    print(f"{time.monotonic() - begin:.0f} s; the table is in {arguments.results}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
