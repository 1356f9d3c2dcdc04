import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
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


@pytest.mark.parametrize("arguments", [("ask", "Why?\udcff"), ("responses", "show", "\udcff")])
def test_a_value_that_is_not_utf_8(gateway: Any, cli: Callable[..., Any], arguments: tuple[str, ...]) -> None:
    """An argument that is not valid UTF-8 ends the command with exit code 2 and a message."""
    result = cli(*arguments, "--url", gateway.url)
    message = "causeway: a value of the command line is not valid UTF-8: it contains '\\udcff'\n"
    assert (result.exit_code, result.stderr) == (2, message)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a file that is always full")
@pytest.mark.parametrize("arguments", [("--help",), ("status", "--json"), ("ask", "Why?")])
def test_a_full_disk(gateway: Any, causeway: list[str], arguments: tuple[str, ...]) -> None:
    """If the output cannot be written, the command ends with exit code 1 and the reason."""
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            [*causeway, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "CAUSEWAY_URL": gateway.url},
            text=True,
        )
    assert (ended.returncode, ended.stderr) == (1, "causeway: No space left on device\n")


def test_an_interrupted_start(causeway: list[str], tmp_path: Path) -> None:
    """Ctrl-C while the command loads its modules ends it with exit code 130, without a traceback."""
    (tmp_path / "sitecustomize.py").write_text(
        "import signal, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    ended = subprocess.run([*causeway, "status"], env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, "")


def test_no_command(cli: Callable[..., Any]) -> None:
    """Without a command, the program prints the list of commands and exits with code 2."""
    result = cli()
    assert result.exit_code == 2
    assert "ingest" in result.stdout + result.stderr
