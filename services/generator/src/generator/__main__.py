"""The command ``causeway-generator``."""

import os
import sys


def main() -> int:
    """Run the service; return the exit code."""
    # gRPC reads this variable when Python imports it. The event engine passes each received message between
    # threads. Without the event engine, each message of a stream costs less (bench/README.md).
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")
    from servicekit import process

    from generator.main import serve
    from generator.settings import Settings

    return process.run("generator", Settings, serve)


if __name__ == "__main__":
    sys.exit(main())
