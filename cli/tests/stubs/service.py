"""Stands in for the service that its file is copied to the name of: starts, prints a line, ends on SIGTERM.

Environment: ``STUB_EXIT_<NAME>``: end at once with this exit code, after saying why.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path


def main() -> None:
    """Runs until SIGTERM."""
    name = Path(__file__).stem
    code = os.environ.get(f"STUB_EXIT_{name.upper()}")
    if code is not None:
        print(f"{name}: CAUSEWAY_SOMETHING: Field required", file=sys.stderr)  # noqa: T201  # its log
        sys.exit(int(code))
    if name == "ingest":  # the only one that is asked for its health by others than the gateway
        asyncio.run(_serve(os.environ["CAUSEWAY_GRPC_SOCKET"]))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(f"{name} serves on {os.environ['CAUSEWAY_GRPC_SOCKET']}", flush=True)  # noqa: T201  # its log
    while True:
        signal.pause()


async def _serve(socket: str) -> None:
    from servicekit.server import GrpcServer  # the other stubs start without it in a tenth of the time

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await GrpcServer(f"unix:{socket}", []).serve_until(stop, 0)


if __name__ == "__main__":
    main()
