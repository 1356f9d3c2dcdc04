"""The entry point of the command."""

import sys
from collections.abc import Sequence

_EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line, by default the process's command line; exit with its exit code."""
    try:
        from causeway.cli import program  # imported here, because the import takes long enough for Ctrl-C

        program.run(arguments)
    except KeyboardInterrupt:
        sys.exit(_EXIT_INTERRUPTED)
