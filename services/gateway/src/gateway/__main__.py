"""Runs the gateway: ``python -m gateway``."""

import sys

from servicekit import process

from gateway.main import serve
from gateway.settings import Settings


def main() -> int:
    """Runs until SIGTERM; returns the exit code."""
    return process.run("gateway", Settings, serve)


if __name__ == "__main__":
    sys.exit(main())
