"""``causeway-guardrails``: runs the guardrails service."""

import sys

from servicekit import process

from guardrails.main import serve
from guardrails.settings import Settings


def main() -> int:
    """Runs the service; the exit code is the process's."""
    return process.run("guardrails", Settings, serve)


if __name__ == "__main__":
    sys.exit(main())
