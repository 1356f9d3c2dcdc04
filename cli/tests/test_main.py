import re
from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    "command",
    [
        "up",
        "ingest",
        "ask",
        "status",
        "demo",
        "documents",
        "documents list",
        "documents passages",
        "documents access",
        "usage",
        "index",
        "index list",
        "index show",
        "index create",
        "index set",
        "index rebuild",
        "index delete",
        "jobs",
        "jobs dead",
        "jobs replay",
        "jobs cancel",
        "keys",
        "keys create",
        "keys list",
        "keys revoke",
        "responses list",
        "responses show",
        "responses cancel",
        "responses delete",
    ],
)
def test_help(cli: Callable[..., Any], command: str) -> None:
    """The help of every command has examples and exit codes."""
    result = cli(*command.split(), "--help")
    assert result.exit_code == 0
    assert f"  causeway {command}" in result.stdout
    assert "Exit codes: 0 success; 1 failure" in result.stdout
    assert "\x1b" not in result.stdout


def test_the_first_steps(cli: Callable[..., Any]) -> None:
    """The help has examples, and no description of a command is cut off. --version prints a version number."""
    shown = cli("--help").stdout
    assert "  causeway up\n" in shown
    assert "COMMAND --help" in shown
    assert "...\n" not in shown.partition("Commands:")[2]
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", cli("--version").stdout)


def test_no_command(cli: Callable[..., Any]) -> None:
    """Without a command, the program prints the list of commands and exits with code 2."""
    result = cli()
    assert result.exit_code == 2
    assert "ingest" in result.stdout + result.stderr
