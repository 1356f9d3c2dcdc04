"""``causeway mcp`` with an invalid command line or input; `test_mcp_bridge.py` tests the bridge."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    "arguments",
    [
        *(("--url", url) for url in ("ftp://127.0.0.1", "http://[::1", "http://127.0.0.1:99999")),
        *(("--front-end", mount) for mount in ("a/b", "a?b", "a b", "\x01")),
        ("--api-key", "secret\n"),
    ],
)
def test_invalid_values_are_refused(cli: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    """Invalid values cause exit code 2 and a message."""
    result = cli("mcp", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("causeway: ")
    assert "secret" not in result.stderr


def test_an_input_that_is_a_file(causeway: list[str], tmp_path: Path) -> None:
    """A file as the standard input ends the command with a message."""
    (tmp_path / "messages").write_text('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    with (tmp_path / "messages").open() as file:
        ended = subprocess.run([*causeway, "mcp"], stdin=file, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("causeway: the standard input must be a pipe, a socket or a terminal")


def test_a_closed_input(causeway: list[str]) -> None:
    """A closed standard input ends the command with a message."""
    ended = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *causeway, "mcp"], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("causeway: the standard input is closed")
