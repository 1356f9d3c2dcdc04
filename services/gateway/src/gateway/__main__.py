"""The command ``python -m gateway``."""

import os
import sys


def main() -> int:
    """Run until SIGTERM; return the exit code."""
    # gRPC reads this variable when it is imported. gRPC's event engine hands each received message from one thread
    # to another. Without the event engine, a streamed token costs the gateway a fifth less (bench/README.md).
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client")
    from servicekit import process

    from gateway.main import serve
    from gateway.settings import Settings

    return process.run("gateway", Settings, serve, own_metrics=True)


if __name__ == "__main__":
    sys.exit(main())
