"""Tables and a plot of what `bench/bench_gateway.py` measured."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt  # the backend has to be chosen first

COLUMNS = {
    "rate": "requests/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "first_ms": "first text ms",
    "cpu_ms": "CPU ms/request",
    "memory_mib": "memory MiB",
}
FLOOR = "asgi + aiohttp relay"


def line(row: dict[str, Any]) -> str:
    """One row, for people who watch."""
    figures = "  ".join(f"{row[name]:8.2f} {label}" for name, label in COLUMNS.items())
    return f"{row['case']:<38} {row['contender']:<22} {figures}"


def write(directory: Path, result: dict[str, Any]) -> None:
    """Writes gateway.json, gateway.md and gateway.svg."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "gateway.json").write_text(json.dumps(result, indent=1) + "\n")
    (directory / "gateway.md").write_text(_table(result))
    _plot(result["rows"], directory / "gateway.svg")


def _table(result: dict[str, Any]) -> str:
    out = [
        "# Through the gateway and the generator, against the model server itself and a bare relay",
        "",
        f"{result['date']}, {result['machine']}. Each contender on one core, stub and load on another. "
        "CPU is over all processes of the contender; the ratio is to the relay's.",
        "",
        "| load | contender | " + " | ".join(COLUMNS.values()) + " | CPU ratio |",
        "|---|---|" + "--:|" * (len(COLUMNS) + 1),
    ]
    floor = {row["case"]: row["cpu_ms"] for row in result["rows"] if row["contender"] == FLOOR}
    for row in result["rows"]:
        ratio = row["cpu_ms"] / floor[row["case"]] if floor.get(row["case"]) else 0
        figures = " | ".join(f"{row[name]:.2f}" for name in COLUMNS)
        out.append(f"| {row['case']} | {row['contender']} | {figures} | {ratio:.2f} |")
    return "\n".join(out) + "\n"


def _plot(rows: list[dict[str, Any]], path: Path) -> None:
    names = list(dict.fromkeys(row["case"] for row in rows))
    contenders = [name for name in dict.fromkeys(row["contender"] for row in rows) if name != "stub directly"]
    figure, axis = plt.subplots(figsize=(9, 0.5 * len(names) + 1.2))
    height = 0.8 / len(contenders)
    for at, contender in enumerate(contenders):
        values = {row["case"]: row["cpu_ms"] for row in rows if row["contender"] == contender}
        places = [number + at * height for number in range(len(names))]
        axis.barh(places, [values.get(name, 0) for name in names], height=height, label=contender)
    axis.set_yticks([number + 0.4 - height / 2 for number in range(len(names))], names)
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.set_xlabel("CPU ms per request, all processes of the contender (log)")
    axis.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
