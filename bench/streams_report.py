"""The page and the plot of bench_streams."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt  # the backend must be selected first

GAPS = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "longest": 1.0}
"""The quantiles of the times between two tokens that the page shows, by their names."""


def page(result: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    tokens, cancellation, memory = result["measurement"], result["cancelled"], result["memory"]
    streams = memory[-1]["streams"]
    kib = {name: (memory[-1][name] - memory[0][name]) / streams * 1024 for name in ("gateway", "generators")}
    stream_tokens = tokens["tokens_of_a_stream"]
    gaps = tokens["gap_ms"]
    rows = {
        "memory of the gateway, without streams and with all": f"{memory[0]['gateway']:.0f}; "
        f"{memory[-1]['gateway']:.0f} MiB",
        "memory of a stream, gateway; generators": f"{kib['gateway']:.0f}; {kib['generators']:.0f} KiB",
        f"tokens per second; the model server sends {streams / result['pace']:.0f}": (
            f"{tokens['tokens'] / tokens['seconds']:.0f}"
        ),
        "cores of the gateway; of the generators": f"{tokens['gateway_cores']:.2f}; "
        f"{tokens['generator_cores']:.2f}",
        "CPU per token, gateway; generators": f"{tokens['gateway_ms_a_token']:.2f}; "
        f"{tokens['generator_ms_a_token']:.2f} ms",
        "tokens of a stream: minimum, 1st percentile, median, maximum": ", ".join(
            str(stream_tokens[name]) for name in ("min", "p1", "median", "max")
        ),
        "Jain's fairness index (1: all streams get the same number)": f"{tokens['jain']:.4f}",
        "time between two tokens: p50, p99, p99.9, longest": ", ".join(f"{gaps[name]:.0f}" for name in GAPS)
        + " ms",
        "broken streams": f"{tokens['broken']}",
        f"{cancellation['disconnected']} clients disconnect together: time until their answers end": (
            f"{cancellation['seconds']:.1f} s"
        ),
        f"tokens of each other stream in the {cancellation['others_seconds']:.1f} s after that: minimum, median": (
            f"{cancellation['others_min']}, {cancellation['others_median']}"
        ),
    }
    return "\n".join(
        [
            "# Slow streams on one gateway",
            "",
            f"{result['date']}, {result['machine']}. One gateway has {streams} concurrent streams. The model "
            f"server sends a token to each stream every {result['pace']:g} s. Generators: {result['generators']}. "
            f"All processes and the load share the machine. The streams start within {result['ramp_seconds']:.0f} "
            f"s. Then the benchmark counts their tokens for {tokens['seconds']:.0f} s.",
            "",
            "| | figure |",
            "|---|--:|",
            *(f"| {name} | {figure} |" for name, figure in rows.items()),
            "",
            "![Memory by streams, times between tokens, running answers after clients disconnect](streams.svg)",
            "",
        ]
    )


def plot(result: dict[str, Any], path: Path) -> None:
    """Plot the memory by streams, the times between tokens, and the running answers after clients disconnect."""
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 3.6))
    memory, tokens, cancellation = result["memory"], result["measurement"], result["cancelled"]
    for name in ("gateway", "generators"):
        left.plot([each["streams"] for each in memory], [each[name] for each in memory], marker="o", label=name)
    left.set(xlabel="streams", ylabel="memory, MiB", ylim=(0, None))
    left.legend(fontsize=8)
    middle.plot(tokens["gaps"], [number / 200 for number in range(201)])
    middle.axvline(result["pace"], color="grey", linewidth=0.8)
    middle.set(xlabel="time between two tokens, s", ylabel="share", xlim=(0, None))
    right.step(
        [at for at, _ in cancellation["curve"]], [running for _, running in cancellation["curve"]], where="post"
    )
    right.set(
        xlabel=f"after {cancellation['disconnected']} clients disconnect, s",
        ylabel="running answers",
        ylim=(0, None),
    )
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
