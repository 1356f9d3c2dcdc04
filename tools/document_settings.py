"""Writes docs/settings.md from the services' settings classes, or checks that it is in step.

Usage: python tools/document_settings.py [--check]
"""

import argparse
import importlib
import sys
from pathlib import Path

from pydantic.fields import FieldInfo
from servicekit.settings import ServiceSettings

TARGET = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
SERVICES = ("gateway", "retriever", "generator", "guardrails", "ingest")


def page() -> str:
    """The page's text."""
    lines = [
        "# Settings",
        "",
        "Each service reads its settings from the environment, once, when it starts. A wrong value ends it with",
        "exit code 78 and a line that names the variable. `make settings` writes this page.",
    ]
    shared = ServiceSettings.model_fields
    lines += ["", "## All services", "", *_table(shared)]
    for service in SERVICES:
        settings: type[ServiceSettings] = importlib.import_module(f"{service}.settings").Settings
        own = {name: field for name, field in settings.model_fields.items() if name not in shared}
        lines += ["", f"## {service}", "", *_table(own)]
    return "\n".join(lines) + "\n"


def _table(fields: dict[str, FieldInfo]) -> list[str]:
    rows = [
        f"| `CAUSEWAY_{name.upper()}` | {_default(field)} | {field.description} |" for name, field in fields.items()
    ]
    return ["| variable | default | meaning |", "|---|---|---|", *rows]


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    return "" if value in (None, "", ()) else f"`{value}`"


def main() -> int:
    """Runs the command line; 1 where the check finds the page out of step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail where the page is out of step")
    if parser.parse_args().check:
        if TARGET.exists() and TARGET.read_text() == page():
            return 0
        print("docs/settings.md is out of step (run `make settings`)")
        return 1
    TARGET.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
