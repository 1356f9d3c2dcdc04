"""``causeway-retriever``: the service's process."""

import sys

from servicekit import process

from retriever.main import serve
from retriever.settings import Settings


def main() -> int:
    """Run the service until SIGTERM and return the exit code."""
    return process.run("retriever", Settings, serve)


if __name__ == "__main__":
    sys.exit(main())
