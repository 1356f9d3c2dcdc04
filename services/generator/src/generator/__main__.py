"""``causeway-generator``: the process."""

import sys

from servicekit import process

from generator.main import serve
from generator.settings import Settings


def main() -> int:
    """Runs the service; returns the exit code."""
    return process.run("generator", Settings, serve)


if __name__ == "__main__":
    sys.exit(main())
