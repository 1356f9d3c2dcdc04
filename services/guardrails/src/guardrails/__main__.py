"""``causeway-guardrails``: runs the guardrails service."""

import os
import sys


def main() -> int:
    """Run the service and return the exit code of the process."""
    # gRPC reads this when it is loaded. Its event engine passes each received message between threads; without
    # it each message of a stream costs less (bench/README.md).
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")
    from servicekit import process

    from guardrails.main import serve
    from guardrails.settings import Settings

    return process.run("guardrails", Settings, serve)


if __name__ == "__main__":
    sys.exit(main())
