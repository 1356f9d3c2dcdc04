import io
import os
import pty
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from causeway.cli import render
from causeway.cli.answers import Answer, Job, JobWarning, Step
from causeway.cli.ingesting import Outcome, Source
from causeway.cli.render import StartProgress, console, printable, time_line
from causeway.cli.watchers import BarsWatcher, summary
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

CONTROLS = {*range(32), *range(127, 160)} - {ord("\n"), ord("\t")}


@given(st.text())
def test_printable(text: str) -> None:
    """Control characters are removed; all other characters remain in order."""
    kept = printable(text)
    assert not CONTROLS & {ord(character) for character in kept}
    assert kept == "".join(character for character in text if printable(character))


def test_the_time_line_has_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    """Each step with a measurable duration has a row with its duration and a proportional bar."""
    answer = Answer(steps=[Step("query", 0.0), Step("Results", 5.0), Step("Answer", 10.0)], total_ms=20.0)
    time_line(console(), answer)
    shown = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in shown] == ["Time", "Results", "Answer", "whole"]
    assert [row.count("█") for row in shown[1:]] == [7, 15, 30]
    assert shown[1].endswith("5.0 ms")


def test_a_ready_process_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal, the output has one line for each ready process."""
    with StartProgress(console()) as progress:
        for state in ("starting", "ok", "unavailable", "ok"):
            progress.update({"nats": state, "gateway": "starting"})
    assert capsys.readouterr().out == "nats is ready\n"


def _on_a_terminal(command: list[str], on_output: Callable[[str], None] = lambda _: None) -> str:
    """Run a command on a pseudo-terminal; return its output. The callback gets the output so far."""
    controller, terminal = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
    process = subprocess.Popen(
        command,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**environment, "TERM": "xterm-256color", "COLUMNS": "100"},
    )
    os.close(terminal)
    shown = b""
    with process:
        while True:
            try:
                chunk = os.read(controller, 65536)
            except OSError:  # the command has closed the terminal
                break
            if not chunk:
                break
            shown += chunk
            on_output(shown.decode(errors="replace"))
    os.close(controller)
    assert process.returncode == 0
    return shown.decode()


def test_colours_on_a_terminal(gateway: Any, causeway: list[str]) -> None:
    """On a terminal, states have colours."""
    assert "\x1b[32mok" in _on_a_terminal([*causeway, "status", "--url", gateway.url])


def test_bars_on_a_terminal(gateway: Any, causeway: list[str], tmp_path: Path) -> None:
    """On a terminal, an ingest shows progress bars and then a table."""
    (tmp_path / "a[bold].md").write_text("x")
    gateway.holds_jobs = True

    def hold_until_chunk_3(shown: str) -> None:
        gateway.holds_jobs = "chunk 3/5" not in shown

    shown = _on_a_terminal(
        [*causeway, "ingest", str(tmp_path / "a[bold].md"), "-i", "x", "--url", gateway.url], hold_until_chunk_3
    )
    assert "━" in shown
    assert "1 succeeded" in shown
    assert "a[bold].md" in shown.rpartition("State")[2]


def test_bars_show_failures_and_the_time_left() -> None:
    """The bar of all files shows the number of failed files and an estimate of the remaining time."""
    shown = io.StringIO()
    with BarsWatcher(Console(file=shown, force_terminal=True, width=120), 4) as bars:
        for name in "abc":
            source = Source(Path(name), name)
            bars.started(source)
            bars.finished(Outcome(source, "failed"))
    assert re.search(r"3 failed, \d+:\d\d:\d\d left", shown.getvalue())


def test_the_summary_of_many_files_is_short() -> None:
    """The table of many files has only the failed ones, and a warning of many files is printed once."""
    scan = Job("j", "succeeded", warnings=(JobWarning("OCR is not installed.", page=1),), warning_count=2)
    outcomes = [
        Outcome(Source(Path(f"{number}.pdf"), f"{number}.pdf"), "succeeded", job=scan) for number in range(51)
    ]
    outcomes.append(Outcome(Source(Path("bad.pdf"), "bad.pdf"), "failed", message="The file is damaged."))
    out = Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)
    summary(out, outcomes)
    assert isinstance(out.file, io.StringIO)
    lines = out.file.getvalue().splitlines()
    assert lines[0].split() == ["File", "State"]
    assert lines[1].split(maxsplit=2) == ["bad.pdf", "failed", "The file is damaged."]
    assert lines[2:] == [
        "not read: 51 parts of 51 files, for example 0.pdf, page 1: OCR is not installed.",
        "not read: 51 more parts",
        "51 succeeded, 1 failed",
    ]


@pytest.mark.parametrize("option", ["--json", "--index=x"])
def test_no_colours_without_a_terminal(gateway: Any, cli: Callable[..., Any], option: str) -> None:
    """If the output is not a terminal, it has no control characters."""
    shown = cli("ask", "Why?", option, "--url", gateway.url)
    assert shown.exit_code == 0
    assert "\x1b" not in shown.stdout
    assert shown.stderr == ""


@pytest.mark.parametrize(
    ("number", "noun", "text"), [(1, "index", "1 index"), (2, "index", "2 indexes"), (0, "stream", "0 streams")]
)
def test_a_number_with_its_noun(number: int, noun: str, text: str) -> None:
    """The noun is singular only after 1."""
    assert render.counted(number, noun) == text
