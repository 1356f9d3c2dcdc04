"""Write or check docs/settings.md, the table of routes in docs/security.md, and servicekit/setting_names.py.

The settings come from the services' settings classes, and the roles of the routes from the gateway's table. A
service warns of each `CAUSEWAY_` variable that is not in servicekit/setting_names.py, which has the settings of all
services.

Usage: python tools/document_settings.py [--check]
"""

import argparse
import importlib
import sys
from pathlib import Path

from gateway.dialects.registry import registrations
from gateway.routes.table import route_table
from gateway.routing.route import Role
from pydantic.fields import FieldInfo
from servicekit.settings import ServiceSettings

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
NAMES = ROOT / "libs/servicekit/src/servicekit/setting_names.py"
TARGET = DOCS / "settings.md"
SECURITY = DOCS / "security.md"
BEGIN, END = "<!-- routes: begin -->\n", "<!-- routes: end -->\n"
SERVICES = ("gateway", "retriever", "generator", "guardrails", "ingest")


def page() -> str:
    """Return the text of docs/settings.md."""
    lines = [
        "# Settings",
        "",
        "This page is for operators. It lists the settings of all services, and their defaults. A service reads",
        "its settings from environment variables once, when it starts:",
        "",
        "```sh",
        "CAUSEWAY_LOG_LEVEL=DEBUG causeway up",
        "```",
        "",
        "If a value is invalid, the service ends with exit code 78 and a line that names the variable. A service",
        "logs a warning for each `CAUSEWAY_` variable that no service has. `make settings` writes this page.",
    ]
    shared = ServiceSettings.model_fields
    lines += ["", "## All services", "", *_table(shared)]
    for service in SERVICES:
        settings: type[ServiceSettings] = importlib.import_module(f"{service}.settings").Settings
        own = {name: field for name, field in settings.model_fields.items() if name not in shared}
        lines += ["", f"## {service}", "", *_table(own)]
    return "\n".join(lines) + "\n"


def names() -> str:
    """Return the text of the module with the names of all settings."""
    own = (importlib.import_module(f"{service}.settings").Settings.model_fields for service in SERVICES)
    lines = [f'        "CAUSEWAY_{name.upper()}",' for name in sorted(set().union(*own))]
    return "\n".join(
        [
            '"""The environment variables of all services. `make settings` writes this module."""',
            "",
            "NAMES = frozenset(",
            "    (",
            *lines,
            "    )",
            ")",
            "",
        ]
    )


def security() -> str:
    """Return the text of docs/security.md with the current table of routes."""
    before, _, rest = SECURITY.read_text().partition(BEGIN)
    rows = ["| role | routes |", "|---|---|"]
    table = route_table(registrations(), console=True)
    for role in Role:
        routes = [f"`{route.method} {route.path.replace(':path}', '}')}`" for route in table if route.role is role]
        rows.append(f"| {'none' if role is Role.OPEN else f'`{role}`'} | {', '.join(routes)} |")
    return before + BEGIN + "\n".join(rows) + "\n" + END + rest.partition(END)[2]


def _table(fields: dict[str, FieldInfo]) -> list[str]:
    rows = [
        f"| `CAUSEWAY_{name.upper()}` | {_default(field)} | {field.description} |" for name, field in fields.items()
    ]
    return ["| variable | default | meaning |", "|---|---|---|", *rows]


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True, validated_data={})
    return "" if value in (None, "", ()) else f"`{value}`"


def main() -> int:
    """Run the command line; return 1 if the check finds an outdated page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a page is outdated")
    pages = {TARGET: page(), SECURITY: security(), NAMES: names()}
    if parser.parse_args().check:
        stale = [path for path, text in pages.items() if not path.exists() or path.read_text() != text]
        for path in stale:
            print(f"{path.relative_to(ROOT)} is outdated; run `make settings`")
        return 1 if stale else 0
    for path, text in pages.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
