"""Benchmark of two pattern detectors on each answer: first text, throughput and CPU of Causeway and of peers.

The model server is a stub that sends all tokens at once, or one token every 20 ms. Contenders run one after
another, each with all of its processes pinned to one core. The stub and the load run on another core.

Usage: python bench/bench_guardrails.py [--quick] [--only NAME …] [--results DIR]
"""

import json
import sys
import time
from typing import Any

from comparison import Case, Row, Stub, compare, parse_arguments
from contenders import GUARDED, OURS, guarded_contenders

NEMO, IORAILS = "NeMo Guardrails", "NeMo Guardrails, IORails"
FIRST = "stream of 64, 20 ms/token, 1 client"
UNARY = "unary, 32 clients"
BURST = "stream of 64, burst, 32 clients"
PACED = "stream of 64, 20 ms/token, 32 clients"
LOADS = {
    Stub(64, 0.02): (Case(FIRST, stream=True, clients=1), Case(PACED, stream=True, clients=32)),
    Stub(64, 0.0): (Case(UNARY, stream=False, clients=32), Case(BURST, stream=True, clients=32)),
}
COLUMNS = {
    "rate": "requests/s",
    "first_ms": "first text ms",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "cpu_ms": "CPU ms/request",
    "per_cpu_second": "requests/CPU s",
    "memory_mib": "memory MiB",
}


def line(row: Row) -> str:
    """Return one row as text for the terminal."""
    figures = "  ".join(f"{row[name]:8.2f} {label}" for name, label in COLUMNS.items())
    return f"{row['case']:<38} {row['contender']:<26} {figures}"


def goals(rows: list[Row]) -> list[str]:
    """Return a table of the goals and the measured results; rows without both results are omitted."""
    at = {(row["case"], row["contender"]): row for row in rows}
    lines = ["| | goal | measured |", "|---|--:|--:|"]
    if (FIRST, GUARDED) in at and (FIRST, OURS) in at:
        added = at[FIRST, GUARDED]["first_ms"] - at[FIRST, OURS]["first_ms"]
        lines.append(f"| first text, added by the detectors | ≤ 5 ms | {added:.1f} ms |")
    for peer, case, goal in (
        (NEMO, UNARY, "≥ 3 times"),
        (NEMO, BURST, "≥ 3 times"),
        (NEMO, PACED, "≥ 3 times"),
        (IORAILS, UNARY, "≥ 0.5 times"),
        (IORAILS, BURST, "≥ 1 times"),
        (IORAILS, PACED, "≥ 1 times"),
    ):
        if (case, GUARDED) in at and (case, peer) in at:
            ratio = at[case, peer]["cpu_ms"] / at[case, GUARDED]["cpu_ms"]
            lines.append(f"| {case}: requests per CPU second compared with {peer} | {goal} | {ratio:.2f} times |")
    return lines


def page(result: dict[str, Any]) -> str:
    """Return the table."""
    rows: list[Row] = result["rows"]
    lines = [
        "# Two pattern detectors on each answer: Causeway and peers",
        "",
        f"{result['date']}, {result['machine']}. Each contender has one core for all of its processes (ours are "
        "gateway, generator and guardrails service). The stub and the load have another core. CPU and memory are "
        f"the sums of all processes of the contender. Each case runs for {result['seconds']} s after a warm-up, "
        "until its last answer is complete. The detectors search the answer for social security numbers and "
        "credit card numbers; the answer contains none.",
        "",
        "The detectors of Causeway and LiteLLM check each token and replace matches. NeMo Guardrails streams in "
        "chunks of 200 tokens by default, so it sends an answer of 64 tokens at its end.",
        "",
        *goals(rows),
        "",
        "## All results",
        "",
        f"| case | contender | {' | '.join(COLUMNS.values())} |",
        f"|---|---|{'--:|' * len(COLUMNS)}",
    ]
    for row in sorted(rows, key=lambda row: (FIRST, PACED, UNARY, BURST).index(row["case"])):
        figures = " | ".join(f"{row[name]:,.2f}" for name in COLUMNS)
        lines.append(f"| {row['case']} | {row['contender']} | {figures} |")
    return "\n".join([*lines, ""])


def main() -> int:
    """Run the benchmark, and write the table and the figures."""
    arguments = parse_arguments(__doc__)
    begin = time.monotonic()
    seconds = 1.0 if arguments.quick else 3.0
    result = compare(guarded_contenders(), LOADS, line, only=arguments.only, seconds=seconds)
    arguments.results.mkdir(parents=True, exist_ok=True)
    (arguments.results / "guardrails.json").write_text(json.dumps(result, indent=1) + "\n")
    (arguments.results / "guardrails.md").write_text(page(result))
    print("\n".join(goals(result["rows"])))
    print(f"{time.monotonic() - begin:.0f} s; the table is in {arguments.results}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
