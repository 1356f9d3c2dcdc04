"""Benchmark of gateways: requests, streams, CPU, first token and memory of Causeway and of peers.

One run on one machine against one model server, a stub that answers at once or 10 ms a token. Each contender runs
alone and is pinned, with all of its processes, to one core; the stub and the load have another.

Usage: python bench/bench_gateway.py [--quick] [--only NAME …] [--results DIR]
"""

import sys
import time
from collections.abc import Iterator

import report
from comparison import Case, Stub, arguments_of, compare
from contenders import contenders

PACE = 0.01
CLIENTS = (1, 16, 64)
STUBS = (Stub(64, 0.0), Stub(64, PACE), Stub(512, 0.0), Stub(512, PACE))


def cases(stub: Stub) -> Iterator[Case]:
    """Return the loads for a model server."""
    if stub == STUBS[0]:
        for clients in CLIENTS:
            yield Case(f"unary, {clients} clients", stream=False, clients=clients)
    for clients in CLIENTS:
        yield Case(f"stream of {stub.label}, {clients} clients", stream=True, clients=clients)


def main() -> int:
    """Run everything, and write the table, the plot and the figures."""
    arguments = arguments_of(__doc__)
    begin = time.monotonic()
    loads = {stub: tuple(cases(stub)) for stub in (STUBS[:2] if arguments.quick else STUBS)}
    seconds = 1.0 if arguments.quick else 2.0
    report.write(arguments.results, compare(contenders(), loads, report.line, only=arguments.only, seconds=seconds))
    print(f"{time.monotonic() - begin:.0f} s; table and plot are in {arguments.results}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
