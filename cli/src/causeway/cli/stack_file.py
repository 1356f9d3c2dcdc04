"""``stack.json``: the description of a running stack for other commands."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "stack.json"


def read(data_dir: Path) -> dict[str, Any]:
    """Return ``{url, services: {name: {pid, port or socket}}, nats_url}``; empty without a valid file."""
    try:
        found = json.loads((data_dir / NAME).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write(data_dir: Path, stack: Mapping[str, object]) -> None:
    """Replace the file atomically: a reader gets the old or the new content. Only its owner may read it.

    Raises:
        OSError: The file cannot be written; the old file is unchanged.
    """
    unfinished = data_dir / f".{NAME}.new"
    try:
        unfinished.touch(0o600)
        unfinished.write_text(json.dumps(stack, indent=2) + "\n")
        unfinished.replace(data_dir / NAME)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


def remove(data_dir: Path) -> None:
    """Delete the file if it exists."""
    (data_dir / NAME).unlink(missing_ok=True)
