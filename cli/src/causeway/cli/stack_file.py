"""``stack.json``: what a running stack tells other commands of itself."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "stack.json"


def read(data_dir: Path) -> dict[str, Any]:
    """``{url, services: {name: {pid, port}}, nats_url}``; empty where no stack runs on the directory."""
    try:
        found = json.loads((data_dir / NAME).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write(data_dir: Path, stack: Mapping[str, object]) -> None:
    """Replaces the file at once: a reader sees the old one or the new one. Nobody else may read it."""
    aside = data_dir / f".{NAME}.new"
    aside.touch(0o600)
    aside.write_text(json.dumps(stack, indent=2) + "\n")
    aside.replace(data_dir / NAME)


def remove(data_dir: Path) -> None:
    """Removes the file, where it is there."""
    (data_dir / NAME).unlink(missing_ok=True)
