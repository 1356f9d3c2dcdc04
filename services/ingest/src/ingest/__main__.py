"""``causeway-ingest``: runs a worker."""

import sys

from servicekit import process

from ingest.main import serve
from ingest.settings import Settings


def main() -> int:
    """Run the worker and return the exit code."""
    return process.run("ingest", Settings, serve)


if __name__ == "__main__":
    sys.exit(main())
