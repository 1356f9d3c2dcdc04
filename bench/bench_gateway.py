"""Benchmark of gateways: requests, streams, CPU, first token and memory of Causeway and of peers.

The model server is a stub that sends all tokens at once, or one token every 10 ms. Contenders run one after
another, each with all of its processes pinned to one core. The stub and the load run on another core.

Usage: python bench/bench_gateway.py [--quick] [--only NAME …] [--results DIR]
"""

import sys
import time
from collections.abc import Iterator

import report
from comparison import Case, Stub, compare, parse_arguments
from contenders import contenders

PACE = 0.01
CLIENTS = (1, 16, 64)
STUBS = (Stub(64, 0.0), Stub(64, PACE), Stub(512, 0.0), Stub(512, PACE))


def cases(stub: Stub) -> Iterator[Case]:
    """Yield the loads for a model server."""
    if stub == STUBS[0]:
        for clients in CLIENTS:
            yield Case(f"unary, {clients} clients", stream=False, clients=clients)
    for clients in CLIENTS:
        yield Case(f"stream of {stub.label}, {clients} clients", stream=True, clients=clients)


def main() -> int:
    """Run the benchmark, and write the table, the plot and the figures."""
    arguments = parse_arguments(__doc__)
    begin = time.monotonic()
    loads = {stub: tuple(cases(stub)) for stub in (STUBS[:2] if arguments.quick else STUBS)}
    seconds = 1.0 if arguments.quick else 2.0
    report.write(arguments.results, compare(contenders(), loads, report.line, only=arguments.only, seconds=seconds))
    print(f"{time.monotonic() - begin:.0f} s; table and plot are in {arguments.results}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
