"""The date and the machine of a benchmark, and its result files."""

import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def circumstances() -> dict[str, str]:
    """Return the date and the machine, with its load of the last five minutes."""
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    return {"date": datetime.now(UTC).date().isoformat(), "machine": f"{machine}, load {os.getloadavg()[1]:.0f}"}


def write(directory: Path, name: str, result: dict[str, Any], page: str) -> None:
    """Write the figures and the page, and print the page."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    (directory / f"{name}.md").write_text(page)
    print_now(page)


def print_now(text: str) -> None:
    """Print a line and flush the output."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
