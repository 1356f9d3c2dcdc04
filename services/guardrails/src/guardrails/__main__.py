"""``causeway-guardrails``: runs the guardrails service."""

import sys

from servicekit import process

from guardrails.main import serve
from guardrails.settings import Settings


def main() -> int:
    """Run the service and return the exit code of the process."""
    return process.run("guardrails", Settings, serve)


if __name__ == "__main__":
    sys.exit(main())
