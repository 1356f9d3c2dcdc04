from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize("command", ["up", "ingest", "ask", "status", "demo"])
def test_help(cli: Callable[..., Any], command: str) -> None:
    """Every command explains itself with examples and exit codes."""
    result = cli(command, "--help")
    assert result.exit_code == 0
    assert f"  causeway {command}" in result.stdout
    assert "Exit codes: 0 done; 1 failed" in result.stdout
    assert "\x1b" not in result.stdout


def test_no_command(cli: Callable[..., Any]) -> None:
    """The list of commands, as wrong usage."""
    result = cli()
    assert result.exit_code == 2
    assert "ingest" in result.stdout + result.stderr
