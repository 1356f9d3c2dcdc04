"""Count the calls for a streamed token, a chat over an index and a small document, and the records of its job.

Usage: python tools/call_counts.py [--update]

The code of the services runs in this process; fakes replace the other processes. The counts do not depend on the
machine, as times would. Without an option, the program compares the counts with the baseline, call_counts.json. It
fails if a count of Python calls grows by more than a fifth, if the number of gRPC calls or of records of a job
grows, or if the baseline does not have a count. --update writes the counts as the new baseline.
"""

import argparse
import asyncio
import contextlib
import io
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from call_counting import documents, gateway, generator, retriever
from call_counting.documents import RECORDS
from call_counting.profiler import RPC
from servicekit import logs, telemetry
from servicekit.settings import ServiceSettings

BASELINE = Path(__file__).with_suffix(".json")
MAX_GROWTH = 1.2
_SECONDS = 200


async def counts() -> dict[str, float]:
    """Return all counts by name."""
    return await gateway.counts() | await generator.counts() | await retriever.counts() | await documents.counts()


def problems(found: Mapping[str, float], baseline: Mapping[str, float]) -> list[str]:
    """Return a message for each count that is above its bound or missing from the baseline."""
    messages = []
    for name, count in found.items():
        before = baseline.get(name)
        if before is None:
            messages.append(f"{name}: the baseline does not contain this count")
        elif count > before * (1 if name.startswith((RPC, RECORDS)) else MAX_GROWTH):
            messages.append(f"{name}: {count:g}, the baseline is {before:g}")
    return messages


async def _counts_in_time() -> dict[str, float]:
    async with asyncio.timeout(_SECONDS):
        return await counts()


@contextlib.contextmanager
def _production_telemetry() -> Iterator[None]:
    """Configure logs and traces as the services do, and discard the log."""
    with contextlib.redirect_stderr(io.StringIO()):
        settings = ServiceSettings()
        logs.configure("calls", settings)
        telemetry.configure("calls", settings)
        yield


def main() -> int:
    """Run the command line; return 1 if a count is too high."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update", action="store_true", help="write the counts as the new baseline")
    update: bool = parser.parse_args().update
    with _production_telemetry():
        found = {name: round(count, 1) for name, count in asyncio.run(_counts_in_time()).items()}
    for name, count in found.items():
        print(f"{count:10g}  {name}")
    if update:
        BASELINE.write_text(json.dumps(found, indent=1) + "\n")
    messages = problems(found, json.loads(BASELINE.read_text()))
    print("\n".join(messages), end="\n" if messages else "")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
