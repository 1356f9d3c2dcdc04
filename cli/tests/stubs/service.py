"""A stub of a service. It prints a line and exits on SIGTERM. The name of the file is the name of the service.

If the environment variable ``STUB_EXIT_<NAME>`` is set, the stub prints an error and exits with this code.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path


def main() -> None:
    """Run until SIGTERM."""
    name = Path(__file__).stem
    code = os.environ.get(f"STUB_EXIT_{name.upper()}")
    if code is not None:
        print(f"{name}: CAUSEWAY_SOMETHING: Field required", file=sys.stderr)  # noqa: T201  # its log
        sys.exit(int(code))
    if name == "ingest":  # the command itself checks the health of ingest
        asyncio.run(_serve(os.environ["CAUSEWAY_GRPC_SOCKET"]))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(f"{name} serves on {os.environ['CAUSEWAY_GRPC_SOCKET']}", flush=True)  # noqa: T201  # its log
    while True:
        signal.pause()


async def _serve(socket: str) -> None:
    from servicekit.server import GrpcServer  # without this import the other stubs start ten times as fast

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await GrpcServer(f"unix:{socket}", []).serve_until(stop, 0)


if __name__ == "__main__":
    main()
