"""The figures of docs/sizing.md equal the results of the benchmarks, or follow from the formulas of the page."""

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

GIB = 1024**3
MIB = 1024**2
CHUNK = 6600
"""The bytes of a chunk in the embedded store, rounded as on the page."""
STREAMS = (100, 1000, 10_000)
RATE, LENGTH, BUSY = 30, 300, 0.7


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    """Return the text of the page with single spaces and plain minus signs."""
    return re.sub(r"\s+", " ", (root / "docs/sizing.md").read_text()).replace("\N{MINUS SIGN}", "-")


@pytest.fixture(scope="module")
def results(root: Path) -> Mapping[str, Any]:
    """Return the results of the benchmarks by name."""
    names = ("gateway", "guardrails", "ingest", "rag", "retrieval", "streams", "tenants")
    return {name: json.loads((root / "bench/results" / f"{name}.json").read_text()) for name in names}


def only_row(rows: list[dict[str, Any]], **values: Any) -> dict[str, Any]:
    """Return the only row with these values."""
    [row] = [row for row in rows if all(row[key] == value for key, value in values.items())]
    return row


def test_the_costs_of_an_answer_equal_the_results(page: str, results: Mapping[str, Any]) -> None:
    """The page has the measured costs of an answer, and the quotients that follow from them."""

    def ours(case: str) -> dict[str, Any]:
        return only_row(results["gateway"]["rows"], case=case, contender="causeway")

    def cpu(case: str) -> float:
        return round(float(ours(case)["cpu_ms"]), 2)

    short, long = "stream of 64, {}, 64 clients", "stream of 512, {}, {} clients"
    burst, paced = cpu(short.format("burst")), cpu(short.format("10 ms/token"))
    long_paced = {clients: cpu(long.format("10 ms/token", clients)) for clients in (1, 16, 64)}
    long_burst = cpu(long.format("burst", 64))
    memory = [ours(long.format("burst", clients))["memory_mib"] for clients in (64, 1)]
    streamed = only_row(results["rag"]["rows"], case="the same, streamed, 10 ms/token", clients=32)
    gateway, generator = streamed["gateway_cpu_ms"], streamed["generator_cpu_ms"]
    unstreamed = only_row(results["rag"]["rows"], case="chat completion over an index, 64 tokens", clients=32)
    retriever = [each["retriever_cpu_ms"] for each in (unstreamed, streamed)]
    phrases = [
        f"| {burst:.1f} ms | M | [gateway.md](../bench/results/gateway.md): 64 tokens in a burst, 64 clients, "
        f"{burst:.2f} ms",
        f"| a token in a stream | {(paced - burst) / 63:.2f} ms | C |",
        f"({paced:.2f} - {burst:.2f}) / 63 and {long_paced[64]:.2f} / 512",
        f"| {long_paced[16] / 512:.2f} ms; {long_paced[1] / 512:.2f} ms |",
        f"{long_paced[16]:.2f} / 512 with 16 clients, {long_paced[1]:.2f} / 512 with one",
        f"| {gateway / (gateway + generator):.0%} | M |".replace("%", " %"),
        f"{gateway:.2f} / ({gateway:.2f} + {generator:.2f})",
        f"({long_burst:.2f} - {burst:.2f}) / 448",
        f"| {(memory[0] - memory[1]) / 63:.2f} MiB | M | gateway.md, burst of 512: "
        f"({memory[0]:.2f} - {memory[1]:.2f}) / 63",
        f"{retriever[0]:.2f} ms of the retriever ({retriever[1]:.2f} ms streamed)",
    ]
    assert [each for each in phrases if each not in page] == []


def test_the_cost_of_detectors_equals_the_results(page: str, results: Mapping[str, Any]) -> None:
    """The page has the difference in CPU time between answers with and without two detectors of a policy."""

    def cpu(case: str) -> list[float]:
        rows, names = results["guardrails"]["rows"], ("causeway, two detectors", "causeway")
        return [
            only_row(rows, case=f"stream of 64, {case}, 32 clients", contender=name)["cpu_ms"] for name in names
        ]

    guarded, plain = cpu("burst")
    paced = cpu("20 ms/token")
    assert f"({guarded:.2f} - {plain:.2f}) / 64" in page
    name = "two pattern detectors of a policy, for each token"
    assert f"| {name} | {(guarded - plain) / 64:.2f} ms | C |" in page
    assert f"{paced[0]:.2f} ms with them, {paced[1]:.2f} ms without" in page


def test_the_other_costs_equal_the_results(page: str, results: Mapping[str, Any]) -> None:
    """The page has the figures of slow streams, searches, ingest and memory."""
    slow, ingest = results["streams"], results["ingest"]
    before, after = slow["memory"][0], slow["memory"][-1]
    per_stream = [(after[name] - before[name]) * 1024 / after["streams"] for name in ("gateway", "generators")]
    measurement, memory = slow["measurement"], ingest["memory_mib"]
    searches = [
        only_row(results["retrieval"]["rows"], chunks=chunks, phase="8 clients at once")
        for chunks in (1000, 20000, 100000)
    ]
    rates = [round(row["searches"] / row["seconds"]) for row in searches]
    store = only_row(results["retrieval"]["sizes"], chunks=100000)["megabytes_per_100k"]
    long, many = ingest["rows"]
    phrases = [
        f"| {per_stream[0]:.0f} KiB; {per_stream[1]:.0f} KiB |",
        f"({after['gateway']:.0f} - {before['gateway']:.0f}) MiB / 5,000",
        f"| {measurement['gateway_ms_a_token']:.2f} ms; {measurement['generator_ms_a_token']:.2f} ms |",
        f"{measurement['gateway_cores']:.2f} and {measurement['generator_cores']:.2f} of a core",
        f"two cores / {rates[0]}, {rates[1]}, {rates[2]} searches a second",
        f"| ≤ {2000 / rates[0]:.0f} / {2000 / rates[1]:.0f} / {2000 / rates[2]:.0f} ms |",
        f"| a chunk of a long document | {long['cpu_ms']:.1f} ms |",
        f"| a chunk of a small file | {many['cpu_ms']:.1f} ms |",
        f"| {store * MIB / 1e8:.1f} KB | M | retrieval.md: {store:.0f} MiB for 100,000 chunks",
        f"a generator has {memory['generator']:.0f} MiB, a retriever {memory['retriever']:.0f}, "
        f"guardrails {memory['guardrails']:.0f}",
    ]
    assert [each for each in phrases if each not in page] == []
    assert round(store * MIB / 1e8, 1) * 1000 == CHUNK


def test_the_figures_of_tenants_equal_the_results(page: str, results: Mapping[str, Any]) -> None:
    """The page has the times, the memory and the other costs of many small indexes."""
    tenants = results["tenants"]
    closed, open_few, open_many, any_index, bounded = tenants["rows"]
    starts, used, after = tenants["starts"], tenants["used"], tenants["after"]
    idle = [tenants["idle_cores"][name] * 100 for name in ("none", "some")]
    phrases = [
        f"{tenants['making_ms']:.0f} ms each with its first document",
        f"| {starts[-1]['ready_s']:.1f} s; {starts[0]['ready_s']:.1f} s with 10 indexes | M |",
        f"| {starts[-1]['memory_mb']:.0f} MiB; {starts[0]['memory_mb']:.0f} MiB",
        f"| {idle[0]:.2f} %; {idle[1]:.2f} % of a core | M |",
        f"| {closed['p50']:.0f} ms; {open_few['p50']:.1f} ms | M |",
        f"| {open_many['a_second']:.0f}; {any_index['a_second']:.0f} | M |",
        f"| {bounded['a_second']:.0f} | M |",
        f"| {tenants['disk_kb']:.0f} KB; {tenants['disk_kb'] / 1000:.1f} GB | M; C |",
        f"| {after['threads']:.0f}; {after['descriptors']:.0f} | M |",
        f"| {after['memory_mb']:.0f} MiB | M |",
        f"| {used['memory_mb']:.0f} MiB; {used['used_mb']:.0f} MiB | M |",
    ]
    assert [each for each in phrases if each not in page] == []


def test_the_table_of_streams_follows_from_the_costs(page: str) -> None:
    """The cores and replicas of each service are the results of the formulas."""
    answer = 2.6 + LENGTH * 0.06
    costs = {
        "gateway: cores; replicas": 0.6 * answer,
        "generator: cores; replicas": 0.4 * answer,
        "retriever, small index (9 ms): cores; replicas": 9,
        f"guardrails, two detectors ({LENGTH * 0.25:.0f} ms an answer): cores; replicas": LENGTH * 0.25,
    }
    for name, cost in costs.items():
        cells = []
        for streams in STREAMS:
            cores = streams * RATE / LENGTH * cost / 1000
            cells.append(f"{float(f'{cores:.2g}'):g}; {max(2, math.ceil(cores / BUSY))}")
        assert f"| {name} | {' | '.join(cells)} |" in page
    total = [sum(costs.values()) * streams * RATE / LENGTH / 1000 for streams in STREAMS]
    assert f"| all four: cores | {total[0]:.1f} | {total[1]:.0f} | {total[2]:.0f} |" in page


def test_the_table_of_chunks_follows_from_the_costs(page: str) -> None:
    """The memory, disk space and CPU time for 1, 10 and 100 million chunks are the results of the formulas."""
    million = 10**6

    def row(name: str, *cells: str) -> str:
        return f"| {name} | {' | '.join(cells)} |"

    def sizes(each: float, unit: float, name: str) -> list[str]:
        amounts = [each * count * million / unit for count in (1, 10, 100)]
        return [f"{amount:.1f} {name}" if amount < 10 else f"{amount:,.0f} {name}" for amount in amounts]

    expected = [
        row("Qdrant's memory, full vectors | 1,536 + 768", *sizes(2304, GIB, "GiB")),
        row("the same, scalar | 384 + 768", *sizes(1152, GIB, "GiB")),
        row("the same, binary | 48 + 768", *sizes(816, GIB, "GiB")),
        row("CPU for ingest, long documents | 9.5 ms", *sizes(9.5, 3_600_000, "core hours")),
        row("CPU for ingest, small files | 16.3 ms", *sizes(16.3, 3_600_000, "core hours")),
        row(
            f"Qdrant's disk | {CHUNK:,} (the embedded store's memory with its files)",
            *sizes(CHUNK, 10**9, "GB"),
        ),
    ]
    assert [each for each in expected if each not in page] == []
    own = round(380 * MIB / million)
    max_chunks = (2 * GIB / million - own) * million / CHUNK
    assert f"about {round(max_chunks, -4):,.0f} chunks (C): ({2 * GIB / million:,.0f} - {own}) MB / 6.6 KB" in page
