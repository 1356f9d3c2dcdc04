"""Tables and a plot of the results of `bench/bench_gateway.py`."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from contenders import DIRECT, LITELLM, OURS

mpl.use("svg")
from matplotlib import pyplot as plt  # the backend must be selected first

COLUMNS = {
    "rate": "requests/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "first_ms": "first text ms",
    "cpu_ms": "CPU ms/request",
    "memory_mib": "memory MiB",
}
_PLOTTED = ", 16 clients"
_ALONE = ", 1 clients"
Row = dict[str, Any]
Rows = dict[tuple[str, str], Row]


def line(row: Row) -> str:
    """Return one row as text for the terminal."""
    figures = "  ".join(f"{row[name]:8.2f} {label}" for name, label in COLUMNS.items())
    return f"{row['case']:<38} {row['contender']:<22} {figures}"


def write(directory: Path, result: dict[str, Any]) -> None:
    """Write gateway.json, gateway.md and gateway.svg."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "gateway.json").write_text(json.dumps(result, indent=1) + "\n")
    (directory / "gateway.md").write_text(_page(result))
    _plot(result["rows"], directory / "gateway.svg")


def _page(result: dict[str, Any]) -> str:
    rows: Rows = {(row["case"], row["contender"]): row for row in result["rows"]}
    return "\n".join(
        [
            "# Gateways: Causeway and peers",
            "",
            f"{result['date']}, {result['machine']}. Each contender has one core for all of its processes (ours "
            "are gateway and generator). The stub and the load have another core. CPU and memory are the sums of "
            f"all processes of the contender. Each case runs for {result['seconds']} s after a warm-up, until its "
            "last answer is complete.",
            "",
            *_goals(rows),
            "",
            "## All results",
            "",
            f"The ratio is the contender's CPU per request divided by that of {OURS}.",
            "",
            *_table(result["rows"], rows),
            "",
        ]
    )


def _goals(rows: Rows) -> list[str]:
    """Return the table of goals; empty if a contender was not measured."""
    if not {OURS, LITELLM, DIRECT} <= {name for _, name in rows}:
        return []
    out = [
        f"| {OURS} compared with {LITELLM} | goal | 1 client | 16 clients | 64 clients |",
        "|---|--:|--:|--:|--:|",
    ]
    for label, goal, figure, *more in GOALS:
        out.append(
            f"| {label} | {goal} | " + " | ".join(figure(rows, *more, f", {n} clients") for n in (1, 16, 64)) + " |"
        )
    return out


def _times_less(rows: Rows, case: str, clients: str) -> str:
    ours, theirs = rows[case + clients, OURS], rows[case + clients, LITELLM]
    return f"{theirs['cpu_ms'] / ours['cpu_ms']:.1f} times less"


def _added(rows: Rows, column: str, case: str, clients: str) -> str:
    ours, direct = rows[case + clients, OURS], rows[case + clients, DIRECT]
    return f"{ours[column] - direct[column]:.2f} ms" if clients == _ALONE else ""


def _share(rows: Rows, clients: str) -> str:
    ours, theirs = _memory(rows, OURS, clients), _memory(rows, LITELLM, clients)
    return f"{ours / theirs:.2f} ({ours:.0f} of {theirs:.0f} MiB)"


def _memory(rows: Rows, contender: str, clients: str) -> float:
    sizes: list[float] = [
        row["memory_mib"] for (case, name), row in rows.items() if name == contender and case.endswith(clients)
    ]
    return max(sizes)


_PACED, _BURST = "stream of 64, 10 ms/token", "stream of 64, burst"
GOALS: tuple[tuple[Any, ...], ...] = (
    ("CPU, stream of 64 at 10 ms per token", "8 times less", _times_less, _PACED),
    ("CPU, stream of 64 in a burst", "25 times less", _times_less, _BURST),
    ("CPU, unary", "10 times less", _times_less, "unary"),
    ("added to the model server's p50, unary", "≤ 2 ms", _added, "p50_ms", "unary"),
    ("added to its first text, burst", "≤ 2 ms", _added, "first_ms", _BURST),
    ("added to its first text, 10 ms per token", "≤ 2 ms", _added, "first_ms", _PACED),
    ("memory, relative to the other product", "≤ 0.50", _share),
)
"""Each goal: its label, the goal, the function for the figure, and further arguments of this function."""


def _table(all_rows: list[Row], rows: Rows) -> list[str]:
    out = [
        "| load | contender | " + " | ".join(COLUMNS.values()) + " | CPU ratio |",
        "|---|---|" + "--:|" * (len(COLUMNS) + 1),
    ]
    # sorted by load, and then in the order of the contenders
    order = list(dict.fromkeys(row["case"] for row in all_rows))
    for row in sorted(all_rows, key=lambda row: order.index(row["case"])):
        ours = rows.get((row["case"], OURS))
        ratio = f"{row['cpu_ms'] / ours['cpu_ms']:.2f}" if ours and row["cpu_ms"] else ""
        figures = " | ".join("" if row["contender"] == DIRECT and not row[n] else f"{row[n]:.2f}" for n in COLUMNS)
        out.append(f"| {row['case']} | {row['contender']} | {figures} | {ratio} |")
    return out


def _plot(rows: list[Row], path: Path) -> None:
    plotted = [row for row in rows if row["case"].endswith(_PLOTTED) and row["contender"] != DIRECT]
    names = list(dict.fromkeys(row["case"] for row in plotted))
    contenders = list(dict.fromkeys(row["contender"] for row in plotted))
    figure, axis = plt.subplots(figsize=(9, 1.1 * len(names) + 1.2))
    height = 0.8 / max(1, len(contenders))
    for position, contender in enumerate(contenders):
        values = {row["case"]: row["cpu_ms"] for row in plotted if row["contender"] == contender}
        offsets = [number + position * height for number in range(len(names))]
        bars = axis.barh(offsets, [values.get(name, 0) for name in names], height=height, label=contender)
        axis.bar_label(bars, fmt="%.2f", fontsize=6, padding=2)
    axis.set_yticks(
        [number + 0.4 - height / 2 for number in range(len(names))],
        [name.removesuffix(_PLOTTED) for name in names],
    )
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.set_xlabel(f"CPU ms per request over all processes of a contender{_PLOTTED} (log)")
    axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
